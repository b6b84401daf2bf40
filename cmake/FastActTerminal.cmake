# Prints a line on the user's terminal. pip shows the output of a build only with -v, so a message() would not be seen.
# Does nothing without a terminal, for example in CI.

function(fastact_print_on_terminal text)
  execute_process(COMMAND sh -c "printf '\\n%s\\n' \"$1\" >/dev/tty" sh "${text}" OUTPUT_QUIET ERROR_QUIET)
endfunction()
