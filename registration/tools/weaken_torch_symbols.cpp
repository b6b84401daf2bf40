// Makes a linked shared library's references to torch weak.
//
// Torch's C++ symbols change between versions, and the dynamic linker stops at the first one it
// cannot find. A user who loads the library into another torch would read a mangled name. With weak
// references the library loads, compares versions before it calls anything else, and reports in one
// sentence what it expects (registration/build_info.h). In the torch that it was built for, every
// reference is found and nothing changes. If a reference is missing in a torch of the same version,
// the library reports this too (registration/torch_symbols.h).
//
//   weaken_torch_symbols LIBRARY
#include <elf.h>

#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "registration/torch_symbols.h"

namespace {

template <class T>
T read_at(const std::vector<char>& file, size_t offset) {
  T value;
  std::memcpy(&value, file.data() + offset, sizeof(T));
  return value;
}

// Returns false and does nothing if this is not a 64-bit ELF file.
bool weaken(std::vector<char>& file) {
  if (file.size() < sizeof(Elf64_Ehdr) || std::memcmp(file.data(), ELFMAG, SELFMAG) != 0 ||
      file[EI_CLASS] != ELFCLASS64) {
    return false;
  }
  const auto header = read_at<Elf64_Ehdr>(file, 0);
  const auto section = [&](size_t index) {
    return read_at<Elf64_Shdr>(file, header.e_shoff + index * header.e_shentsize);
  };
  for (size_t i = 0; i < header.e_shnum; ++i) {
    const Elf64_Shdr symbols = section(i);
    if (symbols.sh_type != SHT_DYNSYM) continue;
    const Elf64_Shdr names = section(symbols.sh_link);
    for (size_t offset = 0; offset < symbols.sh_size; offset += symbols.sh_entsize) {
      auto symbol = read_at<Elf64_Sym>(file, symbols.sh_offset + offset);
      const std::string name(file.data() + names.sh_offset + symbol.st_name);
      if (symbol.st_shndx != SHN_UNDEF || ELF64_ST_BIND(symbol.st_info) != STB_GLOBAL ||
          !fastact::is_torch_symbol(name)) {
        continue;
      }
      symbol.st_info = ELF64_ST_INFO(STB_WEAK, ELF64_ST_TYPE(symbol.st_info));
      std::memcpy(file.data() + symbols.sh_offset + offset, &symbol, sizeof(symbol));
    }
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "weaken_torch_symbols: expected one argument, a shared library\n";
    return 1;
  }
  std::ifstream input(argv[1], std::ios::binary);
  std::vector<char> file((std::istreambuf_iterator<char>(input)), std::istreambuf_iterator<char>());
  input.close();
  if (!weaken(file)) {
    std::cerr << "weaken_torch_symbols: expected a 64-bit ELF file, but got " << argv[1] << '\n';
    return 1;
  }
  std::ofstream output(argv[1], std::ios::binary | std::ios::trunc);
  output.write(file.data(), static_cast<std::streamsize>(file.size()));
  return output.good() ? 0 : 1;
}
