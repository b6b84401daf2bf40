# Lists our C++ files for the scripts that check and format them. Sourced; prints NUL-separated
# names.

cpp_sources() {
  find ops registration cpp_tests examples benchmarks scripts -type f \
    \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) -print0 2>/dev/null | sort -z
}
