// The output file of an archive.
#pragma once

#include <c10/util/Exception.h>

#include <cerrno>
#include <fstream>
#include <streambuf>
#include <string>
#include <system_error>
#include <utility>

namespace fastact::optimizing {

// A file that accepts every write. close() throws if any write has failed.
class Sink : public std::streambuf {
 public:
  explicit Sink(std::string path) : path_(std::move(path)) {
    errno = 0;
    file_.open(path_, std::ios::binary | std::ios::trunc);
    note();
  }

  void close() {
    if (error_ == 0) {
      errno = 0;
      file_.close();
      note();
    }
    TORCH_CHECK(error_ == 0, "fastact::optimize: expected to write ", path_,
                ", but got: ", std::generic_category().message(error_));
  }

 protected:
  std::streamsize xsputn(const char* data, std::streamsize count) override {
    if (error_ == 0) {
      errno = 0;
      file_.write(data, count);
      note();
    }
    return count;
  }

  int_type overflow(int_type c) override {
    const char character = traits_type::to_char_type(c);
    if (!traits_type::eq_int_type(c, traits_type::eof())) xsputn(&character, 1);
    return traits_type::not_eof(c);
  }

 private:
  // Keeps the first error.
  void note() {
    if (!file_) error_ = errno != 0 ? errno : EIO;
  }

  std::string path_;
  std::ofstream file_;
  int error_ = 0;
};

}  // namespace fastact::optimizing
