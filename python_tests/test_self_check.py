"""Tests of the comparison of a GPU's arithmetic that need no GPU: compilation and fork()."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from support import REPOSITORY

pytestmark = pytest.mark.kernels


@pytest.fixture(scope="module")
def compiler():
    """A compiler command with the include paths of the library and of CUDA."""
    packages = Path(torch.__file__).parents[1]
    headers = [*packages.glob("nvidia/cu*/include"), packages / "triton/backends/nvidia/include"]
    found = [folder for folder in headers if (folder / "cuda_runtime_api.h").is_file()]
    command = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")
    if not found or not command:
        pytest.skip("no headers of CUDA's, or no compiler")
    # With FASTACT_ONLY the list of activations comes from a header that the test writes.
    return [command, "-std=c++20", "-DFASTACT_ONLY", f"-I{REPOSITORY}", f"-I{found[0]}"]


def listing(folder, count):
    """Writes a catalogue of `count` families of forms: activations and the four other families."""
    header = folder / "ops" / "generated" / "only.h"
    header.parent.mkdir(parents=True)
    header.write_text(f"#define FASTACT_ACTIVATIONS(X) {'X(relu, Relu) ' * (count - 4)}\n")
    return f"-I{folder}"


def test_a_family_without_a_bit_for_its_claims_is_an_error(compiler, tmp_path):
    def error(count):
        own = listing(tmp_path / str(count), count)
        source = REPOSITORY / "ops" / "cuda" / "self_check.cpp"
        command = [*compiler, own, "-fsyntax-only", source]
        return subprocess.run(command, capture_output=True, text=True).stderr

    assert error(31) == ""
    assert "SelfCheck has bits for 31 families of forms, but ops/catalogue.h lists more" in error(
        32
    )


# Fakes of the CUDA functions that a comparison calls, and a program that forks during one. Its one
# translation unit includes self_check.cpp, because the headers take seconds to compile.
FAKE_CUDA = """
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <iostream>
#include <thread>

#include "ops/catalogue.h"
#include "ops/cuda/self_check.cpp"

namespace fastact {
std::span<const Family> families() { return {}; }
}  // namespace fastact

extern "C" {
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = 9;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorName(cudaError_t) { return "fake"; }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t*, unsigned) { return cudaSuccess; }
cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return cudaSuccess; }
}

std::atomic<bool> started = false;

cudaError_t slow(cudaStream_t, fastact::cuda::Findings& findings) {
  started = true;
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  findings.results = 7;
  return cudaSuccess;
}

int main() {
  fastact::cuda::SelfCheck check(&slow);
  std::thread other([&] { check.reciprocals_serve(3, nullptr); });
  while (!started) std::this_thread::yield();
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    std::cout << check.describe() << std::endl;
    std::cout << check.reciprocals_serve(3, nullptr) << check.reciprocals_serve(4, nullptr);
    std::cout << std::endl;
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  other.join();
  std::cout << check.describe() << std::endl;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
"""


def test_a_fork_waits_for_a_comparison(compiler, tmp_path):
    """The child would otherwise wait for a thread that does not exist in it."""
    (tmp_path / "test.cpp").write_text(FAKE_CUDA)
    own = listing(tmp_path, 3)
    program = tmp_path / "test"
    subprocess.run([*compiler, own, "-pthread", tmp_path / "test.cpp", "-o", program], check=True)
    done = subprocess.run([program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout
    found, serves, parents = done.stdout.splitlines()
    assert found.startswith("device 3 (compute capability 9.9): fast, as all 7 results")
    assert serves == "11" and parents == found
