// Runs the networks of train.py from C++: loads their TorchScript archives, classifies the held-out
// digits, compares the logits with Python's bit for bit, and times each network and its twin with
// PyTorch's own operators.
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <dlfcn.h>
#include <torch/cuda.h>
#include <torch/script.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

constexpr char kUsage[] =
    R"(usage: digits --model PATH [--model PATH ...] [--data PATH] [--device cpu|cuda ...]
              [--batch N] [--library PATH] [--override]

Classifies the held-out digits with networks that train.py saved, and prints for each network its
accuracy, whether its logits equal Python's, and its latency beside PyTorch's own operator.

  --model PATH       a network, such as selu.pt; its twin on PyTorch's operator, selu.torch.pt, is
                     expected beside it; may be given several times
  --data PATH        the held-out digits (default: heldout.pt beside the first network)
  --device cpu|cuda  where to run (default: cpu); may be given several times
  --batch N          digits in one forward call (default: as in Python)
  --library PATH     the FastAct library (default: the installed one this app was configured with)
  --override         also run the twins with FastAct's kernels in the place of PyTorch's, by the
                     libfastact_aten.so beside the library
  --help             this text
)";

constexpr int kWarmUpRuns =
    30;  // the TorchScript executor profiles and specializes in its first runs
constexpr int kTimedRuns = 300;
constexpr double kTimedSeconds = 4;  // then fewer runs suffice, on a slow or busy machine

// An error message for the user, in one sentence.
struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Options {
  std::vector<std::string> models;
  std::vector<std::string> devices;
  std::string data;
  std::string library = DIGITS_DEFAULT_LIBRARY;
  std::optional<int64_t> batch;
  bool overrides = false;
  bool help = false;
};

struct HeldOut {
  at::Tensor pixels;
  at::Tensor labels;
  int64_t batch = 0;
  c10::Dict<c10::IValue, c10::IValue> entries;  // the contents of the file, with Python's logits
};

struct Row {
  std::string model;
  std::string device;
  double accuracy = 0;
  std::string equality;
  double fastact_us = 0;
  double torch_us = 0;
  // The twin with PyTorch's own operators, without and with an override.
  double twin_accuracy = 0;
  double overridden_accuracy = 0;
  bool twin_equals_network = false;
  bool overridden_equals_network = false;
  double plain_us = 0;
  double overridden_us = 0;
};

// --- Reading the command line, the library and the files ---

int64_t ParseBatch(const std::string& text) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || value < 1) {
    throw Failure("expected --batch to be a positive whole number, but got '" + text + "'.");
  }
  return value;
}

Options ParseOptions(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    std::string flag = argv[i];
    if (flag == "--help") {
      options.help = true;
      return options;
    }
    if (flag == "--override") {
      options.overrides = true;
      continue;
    }
    const size_t equals = flag.find('=');
    std::optional<std::string> inline_value;
    if (equals != std::string::npos) {
      inline_value = flag.substr(equals + 1);
      flag.resize(equals);
    }
    const bool known = flag == "--model" || flag == "--data" || flag == "--device" ||
                       flag == "--batch" || flag == "--library";
    if (!known) throw Failure("unknown argument '" + flag + "'; --help lists the flags.");
    if (!inline_value && i + 1 == argc) throw Failure(flag + " needs a value.");
    const std::string value = inline_value ? *inline_value : argv[++i];
    if (flag == "--model") options.models.push_back(value);
    if (flag == "--data") options.data = value;
    if (flag == "--device") options.devices.push_back(value);
    if (flag == "--batch") options.batch = ParseBatch(value);
    if (flag == "--library") options.library = value;
  }
  if (options.models.empty()) throw Failure("expected --model PATH; --help lists the flags.");
  for (const std::string& device : options.devices) {
    if (device != "cpu" && device != "cuda") {
      throw Failure("expected --device to be cpu or cuda, but got '" + device + "'.");
    }
  }
  if (options.devices.empty()) options.devices = {"cpu"};
  if (options.data.empty()) {
    options.data = std::filesystem::path(options.models[0]).replace_filename("heldout.pt").string();
  }
  return options;
}

void RequireFile(const std::string& path, std::string_view what) {
  if (!std::filesystem::exists(path)) {
    throw Failure(std::string(what) + " '" + path + "' does not exist.");
  }
  if (!std::filesystem::is_regular_file(path)) {
    throw Failure(std::string(what) + " '" + path + "' is not a file.");
  }
}

// Returns the line of a PyTorch error that names the cause: the last line for an error inside
// TorchScript, which starts with the script's stack, and the first line for any other error.
std::string Cause(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  std::string text = torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
  while (!text.empty() && text.back() == '\n') text.pop_back();
  if (text.find("TorchScript interpreter") != std::string::npos) {
    text.erase(0, text.rfind('\n') + 1);
  }
  while (!text.empty() && text.front() == '\n') text.erase(0, 1);
  text.resize(std::min({text.size(), text.find('\n'), text.find(". ")}));
  while (!text.empty() && (text.back() == '.' || text.back() == ':')) text.pop_back();
  return text;
}

std::optional<c10::OperatorHandle> FindOperator(const char* name) {
  return c10::Dispatcher::singleton().findSchema({name, ""});
}

// Opens libfastact.so, which registers its operators with PyTorch, and returns its build_info().
std::string LoadFastAct(const std::string& path) {
  RequireFile(path, "the FastAct library");
  // dlopen searches other folders for a bare name, so the path is absolute.
  if (dlopen(std::filesystem::absolute(path).c_str(), RTLD_NOW | RTLD_LOCAL) == nullptr) {
    throw Failure("the FastAct library cannot be loaded beside torch " TORCH_VERSION ": " +
                  std::string(dlerror()) + ".");
  }
  const auto build_info = FindOperator("fastact::build_info");
  if (!build_info || !FindOperator("fastact::selu") || !FindOperator("fastact::relu")) {
    throw Failure("'" + path + "' is not the FastAct library: it registers no fastact operators.");
  }
  torch::jit::Stack stack;
  build_info->callBoxed(stack);
  return stack.back().toStringRef();
}

// Begins or ends an override of PyTorch's kernels: "begin" or "end".
void Override(const std::string& what) {
  torch::jit::Stack stack;
  FindOperator(("fastact_aten::" + what).c_str()).value().callBoxed(stack);
}

// Opens the library that overrides PyTorch's kernels. This begins an override, which is ended.
void LoadOverride(const std::string& library) {
  const std::string path =
      std::filesystem::absolute(library).replace_filename("libfastact_aten.so").string();
  RequireFile(path, "the library for --override");
  if (dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) == nullptr)
    throw Failure("the library for --override cannot be loaded: " + std::string(dlerror()) + ".");
  if (!FindOperator("fastact_aten::end")) {
    throw Failure("'" + path + "' does not fit the FastAct library that is loaded.");
  }
  Override("end");
}

HeldOut LoadHeldOut(const std::string& path) {
  RequireFile(path, "the held-out data");
  std::ifstream stream(path, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(stream), {}};
  if (!stream) throw Failure("the held-out data '" + path + "' cannot be read.");
  try {
    const c10::IValue value = torch::jit::pickle_load(bytes);
    HeldOut data{.entries = value.toGenericDict()};
    data.pixels = data.entries.at("pixels").toTensor();
    data.labels = data.entries.at("labels").toTensor();
    data.batch = data.entries.at("batch").toTensor().item<int64_t>();
    // Matrix products split their sums by the number of threads, so the bits can equal Python's
    // only with the same number.
    at::set_num_threads(data.entries.at("threads").toTensor().item<int>());
    return data;
  } catch (const std::exception& error) {
    throw Failure("'" + path + "' is not the held-out data that train.py saves: " + Cause(error) +
                  ".");
  }
}

torch::jit::Module LoadArchive(const std::string& path, const at::Device& device) {
  RequireFile(path, "the network");
  torch::jit::Module module;
  try {
    module = torch::jit::load(path, device);
  } catch (const std::exception& error) {
    throw Failure("'" + path +
                  "' is not a TorchScript archive that can be loaded: " + Cause(error) + ".");
  }
  if (!module.hasattr("name") || !module.attr("name").isString()) {
    throw Failure("'" + path + "' is not a network of train.py: it has no attribute 'name'.");
  }
  module.eval();
  return module;
}

// --- Running ---

// A progress line on stderr. On a terminal it overwrites itself, and is erased at the end.
class Progress {
 public:
  Progress() = default;
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() {
    if (terminal_) std::fprintf(stderr, "\r\033[K");
  }
  void Show(const std::string& text) const {
    std::fprintf(stderr, terminal_ ? "\r%s\033[K" : "%s\n", text.c_str());
    std::fflush(stderr);
  }

 private:
  const bool terminal_ = isatty(STDERR_FILENO) != 0;
};

at::Tensor Predict(torch::jit::Module& module, const at::Tensor& pixels, int64_t batch) {
  std::vector<at::Tensor> parts;
  for (const at::Tensor& part : pixels.split(batch)) {
    parts.push_back(module.forward({part}).toTensor());
  }
  return at::cat(parts).cpu();
}

std::string CompareWithPython(const at::Tensor& logits, const HeldOut& data,
                              const std::string& model, const std::string& device) {
  const std::string key = "logits." + model + "." + device;
  if (!data.entries.contains(key)) return "not in the data";
  const at::Tensor expected = data.entries.at(key).toTensor();
  if (expected.sizes() != logits.sizes()) return "another shape";
  if (at::equal(logits.view(at::kInt), expected.view(at::kInt))) return "bit for bit";
  const double difference = (logits - expected).abs().max().item<double>();
  char text[40];
  std::snprintf(text, sizeof text, "within %.0e", difference);
  return text;
}

double SecondsOf(const std::function<void()>& work, const at::Device& device) {
  if (device.is_cuda()) torch::cuda::synchronize();
  const auto start = std::chrono::steady_clock::now();
  work();
  if (device.is_cuda()) torch::cuda::synchronize();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Returns the median seconds of two works. They take turns, so that a change of the clock rate or
// another process affects both.
std::pair<double, double> Latencies(const std::function<void()>& first,
                                    const std::function<void()>& second, const at::Device& device) {
  std::vector<double> first_times;
  std::vector<double> second_times;
  double total = 0;
  for (int run = -kWarmUpRuns; run < kTimedRuns && total < kTimedSeconds; ++run) {
    const double a = SecondsOf(first, device);
    const double b = SecondsOf(second, device);
    if (run < 0) continue;
    total += a + b;
    first_times.push_back(a);
    second_times.push_back(b);
  }
  return {Median(first_times), Median(second_times)};
}

double Accuracy(const at::Tensor& logits, const HeldOut& data) {
  return logits.argmax(1).eq(data.labels).to(at::kDouble).mean().item<double>();
}

// Results of an archive with PyTorch's own operators, without and with an override.
void RunTwin(torch::jit::Module& twin, const at::Tensor& pixels, const at::Tensor& logits,
             const HeldOut& data, int64_t batch, Row& row) {
  const auto equal = [&](const at::Tensor& found) {
    return at::equal(found.view(at::kInt), logits.view(at::kInt));
  };
  const at::Tensor plain = Predict(twin, pixels, batch);
  Override("begin");
  const at::Tensor overridden = Predict(twin, pixels, batch);
  Override("end");
  row.twin_accuracy = Accuracy(plain, data);
  row.overridden_accuracy = Accuracy(overridden, data);
  row.twin_equals_network = equal(plain);
  row.overridden_equals_network = equal(overridden);
  const at::Tensor part = pixels.narrow(0, 0, batch);
  const auto [with, without] = Latencies(
      [&] {
        Override("begin");
        twin.forward({part});
        Override("end");
      },
      [&] { twin.forward({part}); }, pixels.device());
  row.overridden_us = with * 1e6;
  row.plain_us = without * 1e6;
}

Row RunNetwork(const std::string& path, const std::string& device_name, const HeldOut& data,
               int64_t batch, bool overrides, const Progress& progress) {
  const at::Device device(device_name);
  std::filesystem::path twin_path(path);  // the same weights on PyTorch's own operator
  twin_path.replace_extension(".torch" + twin_path.extension().string());
  progress.Show("loading " + path + " on " + device_name);
  torch::jit::Module network = LoadArchive(path, device);
  torch::jit::Module twin = LoadArchive(twin_path.string(), device);

  Row row;
  row.model = network.attr("name").toStringRef();
  row.device = device_name;
  const at::Tensor pixels = data.pixels.to(device);
  at::Tensor logits;
  try {
    progress.Show("classifying with " + row.model + " on " + device_name);
    logits = Predict(network, pixels, batch);
    row.accuracy = Accuracy(logits, data);
    row.equality = CompareWithPython(logits, data, row.model, device_name);
    progress.Show("timing " + row.model + " on " + device_name);
    const at::Tensor part = pixels.narrow(0, 0, batch);
    const auto [ours, theirs] =
        Latencies([&] { network.forward({part}); }, [&] { twin.forward({part}); }, device);
    row.fastact_us = ours * 1e6;
    row.torch_us = theirs * 1e6;
    if (overrides) RunTwin(twin, pixels, logits, data, batch, row);
  } catch (const std::exception& error) {
    throw Failure("'" + path + "' cannot classify the digits: " + Cause(error) + ".");
  }
  return row;
}

// Returns the value in the line "key: value" of build_info().
std::string Field(const std::string& build_info, const std::string& key) {
  const size_t line = ("\n" + build_info).find("\n" + key + ": ");
  if (line == std::string::npos) return "unknown";
  const size_t start = line + key.size() + 2;
  return build_info.substr(start, build_info.find('\n', start) - start);
}

void PrintTable(const std::vector<Row>& rows, const HeldOut& data, int64_t batch,
                const std::string& build_info) {
  std::printf("FastAct %s for torch %s, CUDA: %s, CPU instruction set: %s\n",
              Field(build_info, "version").c_str(), Field(build_info, "torch").c_str(),
              Field(build_info, "cuda").c_str(),
              Field(build_info, "cpu instruction set in use").c_str());
  std::printf(
      "%lld held-out digits, batches of %lld, CPU threads: %d, median of up to %d calls\n\n",
      static_cast<long long>(data.pixels.size(0)), static_cast<long long>(batch),
      at::get_num_threads(), kTimedRuns);
  std::printf("%-7s %-7s %9s   %-17s %12s %14s %9s\n", "model", "device", "accuracy",
              "equal to Python", "FastAct", "PyTorch's op", "speed-up");
  for (const Row& row : rows) {
    std::printf("%-7s %-7s %8.1f%%   %-17s %9.1f us %11.1f us %8.2fx\n", row.model.c_str(),
                row.device.c_str(), row.accuracy * 100, row.equality.c_str(), row.fastact_us,
                row.torch_us, row.torch_us / row.fastact_us);
  }
  if (batch != data.batch) {
    std::printf(
        "\nPython ran batches of %lld: matrix products of another size may round otherwise.\n",
        static_cast<long long>(data.batch));
  }
}

void PrintOverrides(const std::vector<Row>& rows) {
  std::printf(
      "\nThe archives of PyTorch's own operators, unchanged, without and with FastAct's kernels in "
      "the place of PyTorch's:\n\n%-13s %-7s %18s   %-22s %12s %12s %9s\n",
      "archive", "device", "accuracy", "logits of FastAct's", "without", "with", "speed-up");
  const auto word = [](bool equal) { return equal ? "equal" : "other"; };
  for (const Row& row : rows) {
    const std::string archive = row.model + ".torch.pt";
    const std::string equality =
        std::string(word(row.twin_equals_network)) + ", " + word(row.overridden_equals_network);
    std::printf("%-13s %-7s %8.1f%% %7.1f%%   %-22s %9.1f us %9.1f us %8.2fx\n", archive.c_str(),
                row.device.c_str(), row.twin_accuracy * 100, row.overridden_accuracy * 100,
                equality.c_str(), row.plain_us, row.overridden_us,
                row.plain_us / row.overridden_us);
  }
}

std::vector<Row> RunNetworks(const Options& options, const HeldOut& data, int64_t batch) {
  const Progress progress;
  std::vector<Row> rows;
  for (const std::string& device : options.devices) {
    for (const std::string& model : options.models) {
      rows.push_back(RunNetwork(model, device, data, batch, options.overrides, progress));
    }
  }
  return rows;
}

void Run(const Options& options) {
  const std::string build_info = LoadFastAct(options.library);
  if (options.overrides) LoadOverride(options.library);
  for (const std::string& device : options.devices) {
    if (device == "cuda" && !torch::cuda::is_available()) {
      throw Failure("--device cuda: PyTorch finds no CUDA device on this machine.");
    }
  }
  for (const std::string& model : options.models) RequireFile(model, "the network");
  const c10::InferenceMode inference;
  const HeldOut data = LoadHeldOut(options.data);
  const int64_t batch = std::min(options.batch.value_or(data.batch), data.pixels.size(0));
  const std::vector<Row> rows = RunNetworks(options, data, batch);
  PrintTable(rows, data, batch, build_info);
  if (options.overrides) PrintOverrides(rows);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Options options = ParseOptions(argc, argv);
    if (options.help) {
      std::fputs(kUsage, stdout);
    } else {
      Run(options);
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "digits: %s\n", error.what());
    return 1;
  }
}
