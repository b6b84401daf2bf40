#include "registration/torch_symbols.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include <memory>

namespace fastact {
namespace {

// The symbols of a loaded library, according to its dynamic section.
struct SymbolTable {
  const ElfW(Sym) * symbols = nullptr;
  const char* names = nullptr;
  // The header of the GNU hash table. Its second word is the index of the first symbol in the
  // table. The undefined symbols precede it, because nobody looks them up.
  const uint32_t* hash = nullptr;

  explicit SymbolTable(const link_map& library) {
    for (const ElfW(Dyn)* entry = library.l_ld; entry->d_tag != DT_NULL; ++entry) {
      // glibc has already made these addresses absolute.
      // NOLINTNEXTLINE(performance-no-int-to-ptr): the dynamic section has numbers
      const auto* address = reinterpret_cast<const void*>(entry->d_un.d_ptr);
      if (entry->d_tag == DT_SYMTAB) symbols = static_cast<const ElfW(Sym)*>(address);
      if (entry->d_tag == DT_STRTAB) names = static_cast<const char*>(address);
      if (entry->d_tag == DT_GNU_HASH) hash = static_cast<const uint32_t*>(address);
    }
  }

  [[nodiscard]] bool is_complete() const { return symbols && names && hash; }
};

}  // namespace

std::vector<std::string> missing_torch_symbols() {
  Dl_info here;
  if (dladdr(reinterpret_cast<const void*>(&missing_torch_symbols), &here) == 0) return {};
  // Also works while the library is being loaded. Names are looked up in the library and in the
  // libraries it is linked to.
  const std::unique_ptr<void, int (*)(void*)> library(
      dlopen(here.dli_fname, RTLD_LAZY | RTLD_NOLOAD), &dlclose);
  link_map* map = nullptr;
  if (library == nullptr || dlinfo(library.get(), RTLD_DI_LINKMAP, static_cast<void*>(&map)) != 0)
    return {};
  const SymbolTable table(*map);
  if (!table.is_complete()) return {};
  std::vector<std::string> missing;
  const uint32_t end = table.hash[1];
  for (uint32_t i = 1; i < end; ++i) {
    const ElfW(Sym) & symbol = table.symbols[i];
    const char* name = table.names + symbol.st_name;
    if (symbol.st_shndx == SHN_UNDEF && is_torch_symbol(name) &&
        dlsym(library.get(), name) == nullptr) {
      missing.emplace_back(name);
    }
  }
  return missing;
}

}  // namespace fastact
