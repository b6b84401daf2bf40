// Writes the files that follow from the catalogue: the public C++ header, the functions that
// implement it, and catalogue.json, from which the Python modules and the pages are generated.
//
//   write_catalogue fastact.h.in fastact.h api.cpp catalogue.json
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>

#include "ops/catalogue.h"

namespace fastact {
namespace {

// The C++ functions of an activation.
struct Functions {
  explicit Functions(const Activation& activation) : name(activation.name) {
    for (const Parameter& parameter : activation.parameters) {
      const std::string declaration = ", double " + std::string(parameter.name);
      // A fused operator has an operand named scale.
      const std::string fused = parameter.name == "scale" ? ", double output_scale" : declaration;
      std::string value;
      if (parameter.default_value.has_value()) value = " = " + literal(*parameter.default_value);
      defined += declaration;
      declared += declaration + value;
      fused_defined += fused;
      fused_declared += fused + value;
      passed += ", " + std::string(parameter.name);
      fused_passed += ", " + fused.substr(std::string(", double ").size());
      types += ", double";
    }
    if (activation.traits.gradient_from_result) {
      comment += ". If is_result is true, self is the activation's result instead of its input";
      declared_result = ", bool is_result = false";
      defined_result = ", bool is_result";
      passed_result = ", is_result";
      result_type = ", bool";
    } else if (activation.traits.saves == Saves::kOutput) {
      operand = "output";
      comment = "f'(x), computed from output = f(x)";
    }
  }

  void declare(std::ostream& to) const {
    to << "\n// ---- " << name
       << " ----\n\n// Returns f(self), elementwise.\nFASTACT_API at::Tensor " << name
       << "(const at::Tensor& self" << declared
       << ");\n\n// Writes the same to self and returns self.\nFASTACT_API at::Tensor& " << name
       << "_(at::Tensor& self" << declared
       << ");\n\n// Writes the same to out and returns out. Resizes out if necessary, with a "
          "warning unless it was empty.\nFASTACT_API at::Tensor& "
       << name << "_out(at::Tensor& out, const at::Tensor& self" << declared
       << ");\n\n// Returns grad_output * " << comment << ".\nFASTACT_API at::Tensor " << name
       << "_backward(const at::Tensor& grad_output, const at::Tensor& " << operand << declared
       << declared_result
       << ");\n\n// Returns f(self * scale + bias + residual) * gate, computed in one pass over "
          "memory. Each operand may be absent.\nFASTACT_API at::Tensor fused_"
       << name << "(const at::Tensor& self, const FusedOperands& operands" << fused_declared
       << ");\n\n// Writes the same to self. No input may require a gradient.\nFASTACT_API "
          "at::Tensor& fused_"
       << name << "_(at::Tensor& self, const FusedOperands& operands" << fused_declared
       << ");\n\n// Writes the same to out.\nFASTACT_API at::Tensor& fused_" << name
       << "_out(at::Tensor& out, const at::Tensor& self, const FusedOperands& operands"
       << fused_declared
       << ");\n\n// Returns f(first half) * (second half) of self's last dimension. If gate_first "
          "is "
          "false, f takes the second half.\nFASTACT_API at::Tensor "
       << name << "_and_mul(const at::Tensor& self" << fused_declared
       << ", bool gate_first = true);\n\n// Writes the same to out.\nFASTACT_API at::Tensor& "
       << name << "_and_mul_out(at::Tensor& out, const at::Tensor& self" << fused_declared
       << ", bool gate_first = true);\n";
  }

  void define(std::ostream& to) const {
    define(to, "at::Tensor", name, "const at::Tensor& self" + defined, name, "",
           "const at::Tensor&" + types, "self" + passed);
    define(to, "at::Tensor&", name + "_", "at::Tensor& self" + defined, name + "_", "",
           "at::Tensor&" + types, "self" + passed);
    define(to, "at::Tensor&", name + "_out", "at::Tensor& out, const at::Tensor& self" + defined,
           name, "out", "const at::Tensor&" + types + ", at::Tensor&", "self" + passed + ", out");
    define(to, "at::Tensor", name + "_backward",
           "const at::Tensor& grad_output, const at::Tensor& " + operand + defined + defined_result,
           name + "_backward", "", "const at::Tensor&, const at::Tensor&" + types + result_type,
           "grad_output, " + operand + passed + passed_result);
    const std::string operands = ", const FusedOperands& operands" + fused_defined;
    const std::string given =
        "self, operands.scale, operands.bias, operands.residual, operands.gate" + fused_passed +
        ", operands.dim";
    std::string fused_types;
    for (int i = 0; i < 4; ++i) fused_types += ", const std::optional<at::Tensor>&";
    fused_types += types + ", int64_t";
    const std::string fused = "fused_" + name;
    define(to, "at::Tensor", fused, "const at::Tensor& self" + operands, fused, "",
           "const at::Tensor&" + fused_types, given);
    define(to, "at::Tensor&", fused + "_", "at::Tensor& self" + operands, fused + "_", "",
           "at::Tensor&" + fused_types, given);
    define(to, "at::Tensor&", fused + "_out", "at::Tensor& out, const at::Tensor& self" + operands,
           fused, "out", "const at::Tensor&" + fused_types + ", at::Tensor&", given + ", out");
    const std::string halves = name + "_and_mul";
    const std::string halves_arguments =
        "const at::Tensor& self" + fused_defined + ", bool gate_first";
    const std::string halves_given = "self" + fused_passed + ", gate_first";
    define(to, "at::Tensor", halves, halves_arguments, halves, "",
           "const at::Tensor&" + types + ", bool", halves_given);
    define(to, "at::Tensor&", halves + "_out", "at::Tensor& out, " + halves_arguments, halves,
           "out", "const at::Tensor&" + types + ", bool, at::Tensor&", halves_given + ", out");
  }

  static void define(std::ostream& to, const std::string& result, const std::string& function,
                     const std::string& arguments, const std::string& op,
                     const std::string& overload, const std::string& argument_types,
                     const std::string& call) {
    to << "\n"
       << result << " " << function << "(" << arguments
       << ") {\n  static constinit const LazyOperator<" << result << "(" << argument_types
       << ")> op(\"fastact::" << op << "\", \"" << overload
       << "\");\n  return op.dispatch(nullptr, " << call << ");\n}\n";
  }

 private:
  std::string name;
  std::string operand = "self";
  std::string comment = "f'(self)";
  std::string declared;
  std::string defined;
  std::string passed;
  std::string types;
  std::string fused_declared;
  std::string fused_defined;
  std::string fused_passed;
  std::string declared_result;
  std::string defined_result;
  std::string passed_result;
  std::string result_type;
};

void write_header(const std::string& form, std::ostream& to) {
  constexpr std::string_view kPlace = "@FASTACT_DECLARATIONS@";
  const size_t place = form.find(kPlace);
  to << form.substr(0, place);
  for (const Activation& activation : activations()) Functions(activation).declare(to);
  to << form.substr(place + kPlace.size());
}

void write_functions(std::ostream& to) {
  to << "// Generated from the catalogue: the functions of fastact/fastact.h.\n"
        "#include \"fastact/fastact.h\"\n\n#include \"registration/operators/signature.h\"\n\n"
        "namespace fastact {\n";
  for (const Activation& activation : activations()) Functions(activation).define(to);
  const std::string swiglu = "double limit, double alpha, bool gate_first, bool interleaved";
  Functions::define(to, "at::Tensor", "clamped_swiglu", "const at::Tensor& self, " + swiglu,
                    "clamped_swiglu", "", "const at::Tensor&, double, double, bool, bool",
                    "self, limit, alpha, gate_first, interleaved");
  Functions::define(to, "at::Tensor&", "clamped_swiglu_out",
                    "at::Tensor& out, const at::Tensor& self, " + swiglu, "clamped_swiglu", "out",
                    "const at::Tensor&, double, double, bool, bool, at::Tensor&",
                    "self, limit, alpha, gate_first, interleaved, out");
  Functions::define(to, "at::Tensor", "selu_alpha_dropout",
                    "const at::Tensor& self, double p, bool train", "selu_alpha_dropout", "",
                    "const at::Tensor&, double, bool", "self, p, train");
  Functions::define(to, "at::Tensor", "glu", "const at::Tensor& self, int64_t dim", "glu", "",
                    "const at::Tensor&, int64_t", "self, dim");
  Functions::define(to, "at::Tensor&", "glu_out",
                    "at::Tensor& out, const at::Tensor& self, int64_t dim", "glu", "out",
                    "const at::Tensor&, int64_t, at::Tensor&", "self, dim, out");
  const std::string bounds = " self, double lower, double upper, bool training";
  const std::string types = ", double, double, bool";
  Functions::define(to, "at::Tensor", "rrelu", "const at::Tensor&" + bounds, "rrelu", "",
                    "const at::Tensor&" + types, "self, lower, upper, training");
  Functions::define(to, "at::Tensor&", "rrelu_", "at::Tensor&" + bounds, "rrelu_", "",
                    "at::Tensor&" + types, "self, lower, upper, training");
  to << "\n}  // namespace fastact\n";
}

// {"activations": [{"name": "elu", "parameters": [{"name": "alpha", "default": 1.0}, ...]}, ...],
//  "has_rows": true}
void write_json(std::ostream& to) {
  const char* separator = "";
  to << "{\"activations\": [";
  for (const Activation& activation : activations()) {
    to << separator << "\n  {\"name\": \"" << activation.name << "\", \"parameters\": [";
    separator = "";
    for (const Parameter& parameter : activation.parameters) {
      to << separator << "{\"name\": \"" << parameter.name << "\", \"default\": "
         << (parameter.default_value ? literal(*parameter.default_value) : "null") << "}";
      separator = ", ";
    }
    to << "]}";
    separator = ",";
  }
  to << "\n], \"has_rows\": " << (row_families().empty() ? "false" : "true") << "}\n";
}

}  // namespace
}  // namespace fastact

int main(int count, char** arguments) {
  if (count != 5) {
    std::cerr << "usage: write_catalogue fastact.h.in fastact.h api.cpp catalogue.json\n";
    return 2;
  }
  std::ostringstream form;
  form << std::ifstream(arguments[1]).rdbuf();
  std::ofstream header(arguments[2]);
  std::ofstream functions(arguments[3]);
  std::ofstream json(arguments[4]);
  fastact::write_header(form.str(), header);
  fastact::write_functions(functions);
  fastact::write_json(json);
  return header.flush() && functions.flush() && json.flush() ? 0 : 1;
}
