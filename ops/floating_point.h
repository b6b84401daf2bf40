// The floating-point environment of a CPU thread: its rounding mode, whether it flushes subnormal
// numbers, and which exceptions it traps.
#pragma once

#include <cstdint>

namespace fastact {

// Gives the calling thread the default floating-point environment until the end of the scope:
// rounding to nearest, subnormal numbers kept, no exceptions trapped. A library or
// torch.set_flush_denormal() may have set another environment. The constructor reads the control
// register and writes it only if the environment differs.
class DefaultFloatingPoint {
 public:
  DefaultFloatingPoint() : before_(read()) {
    if (differs()) write(kDefault);
  }
  ~DefaultFloatingPoint() {
    if (differs()) write(before_);
  }
  DefaultFloatingPoint(const DefaultFloatingPoint&) = delete;
  DefaultFloatingPoint& operator=(const DefaultFloatingPoint&) = delete;

 private:
  // The "memory" clobber keeps the compiler from moving memory accesses, and so computations on
  // loaded values, across read() and write().
#if defined(__x86_64__)
  using Register = uint32_t;  // MXCSR
  static constexpr Register kDefault = 0x1f80;
  static constexpr Register kControl = 0xffc0;  // the other bits are flags of past exceptions

  static Register read() {
    Register value;
    asm volatile("stmxcsr %0" : "=m"(value) : : "memory");
    return value;
  }
  static void write(Register value) { asm volatile("ldmxcsr %0" : : "m"(value) : "memory"); }
#elif defined(__aarch64__)
  using Register = uint64_t;  // FPCR
  static constexpr Register kDefault = 0;
  static constexpr Register kControl = ~Register{0};

  static Register read() {
    Register value;
    asm volatile("mrs %0, fpcr" : "=r"(value) : : "memory");
    return value;
  }
  static void write(Register value) { asm volatile("msr fpcr, %0" : : "r"(value) : "memory"); }
#else
#error "expected x86-64 or 64-bit Arm"
#endif

  [[nodiscard]] bool differs() const { return (before_ & kControl) != kDefault; }

  Register before_;
};

// A function pointer, possibly null. Calls through it compute in the default floating-point
// environment.
template <class Function>
class InDefaultFloatingPoint;

template <class Result, class... Arguments>
class InDefaultFloatingPoint<Result (*)(Arguments...)> {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor): replaces a function pointer
  constexpr InDefaultFloatingPoint(Result (*function)(Arguments...) = nullptr)
      : function_(function) {}

  // The compiler cannot inline the function, so it moves none of its arithmetic out of the scope.
  Result operator()(Arguments... arguments) const {
    const DefaultFloatingPoint environment;
    return function_(arguments...);
  }

  friend constexpr bool operator==(InDefaultFloatingPoint, InDefaultFloatingPoint) = default;

 private:
  Result (*function_)(Arguments...);
};

}  // namespace fastact
