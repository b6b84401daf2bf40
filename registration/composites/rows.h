// Derivatives of the row operators in PyTorch's operators, which can be differentiated further.
// They are DerivativeRule::Compositions. 16-bit types compute in float32 and are rounded at the
// end.
#pragma once

#include "registration/operators/operator.h"

namespace fastact {

// The tangent of log_softmax: t - sum(e^y t). `inputs` is the result y.
at::Tensor log_softmax_tangent(const Operator& op, const CallParameters& parameters,
                               const at::Tensor& incoming, const at::Tensor* inputs);

// The derivatives of softmax_backward(g, y) = y (g - sum(g y)) by y: the gradient for the incoming
// h, and the tangent for the tangent t of y.
//   h (g - sum(g y)) - g sum(h y)
//   t (g - sum(g y)) - y sum(g t)
at::Tensor softmax_backward_by_output(const Operator& op, const CallParameters& parameters,
                                      const at::Tensor& incoming, const at::Tensor* inputs);
at::Tensor softmax_backward_tangent_of_output(const Operator& op, const CallParameters& parameters,
                                              const at::Tensor& incoming, const at::Tensor* inputs);

// The derivatives of log_softmax_backward(g, y) = g - e^y sum(g): the gradient by g, and the
// derivative by y.
//   h - sum(e^y h)
//   -h e^y sum(g)
at::Tensor log_softmax_backward_by_grad(const Operator& op, const CallParameters& parameters,
                                        const at::Tensor& incoming, const at::Tensor* inputs);
at::Tensor log_softmax_backward_by_output(const Operator& op, const CallParameters& parameters,
                                          const at::Tensor& incoming, const at::Tensor* inputs);

// The gradient and the tangent of logsumexp: g p and sum(t p), with p = softmax(self).
at::Tensor logsumexp_by_self(const Operator& op, const CallParameters& parameters,
                             const at::Tensor& incoming, const at::Tensor* inputs);
at::Tensor logsumexp_tangent(const Operator& op, const CallParameters& parameters,
                             const at::Tensor& incoming, const at::Tensor* inputs);

// The derivatives of logsumexp_backward(self, g) = g p, for the incoming gradient h: by self,
// g p (h - sum(h p)), which also serves as the tangent; by g, sum(h p).
at::Tensor logsumexp_backward_by_self(const Operator& op, const CallParameters& parameters,
                                      const at::Tensor& incoming, const at::Tensor* inputs);
at::Tensor logsumexp_backward_by_grad(const Operator& op, const CallParameters& parameters,
                                      const at::Tensor& incoming, const at::Tensor* inputs);

// The tangent of cross_entropy: sum(t p) - t[target].
at::Tensor cross_entropy_tangent(const Operator& op, const CallParameters& parameters,
                                 const at::Tensor& incoming, const at::Tensor* inputs);

// The derivatives of cross_entropy_backward(self, target, g) = g (p - 1 at the target): those of
// logsumexp_backward by self, and sum(h p) - h[target] by g.
at::Tensor cross_entropy_backward_by_self(const Operator& op, const CallParameters& parameters,
                                          const at::Tensor& incoming, const at::Tensor* inputs);
at::Tensor cross_entropy_backward_by_grad(const Operator& op, const CallParameters& parameters,
                                          const at::Tensor& incoming, const at::Tensor* inputs);

}  // namespace fastact
