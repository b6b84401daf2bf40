"""GLU and the randomized leaky ReLU in the Python package, with PyTorch's signatures."""

GLU_FUNCTION = '''_glu = torch.ops.fastact.glu


def glu(input: Tensor, dim: int = -1) -> Tensor:
    """a * sigmoid(b), where a and b are the halves of input along `dim`.

    Like torch.nn.functional.glu.

    Shape:
        any with an even size along `dim`, with any strides; the result has half of that size.
    Types:
        float32, float64, bfloat16, float16; CPU and CUDA; differentiable to any order.
    Raises:
        IndexError: there is no such dimension.
        NotImplementedError: the tensor is not dense, or has none of these types.
        RuntimeError: the size is odd, or the tensor is 0-D.
    """
    return _glu(input, dim)
'''

RRELU_FUNCTION = '''_rrelu = torch.ops.fastact.rrelu
_rrelu_ = torch.ops.fastact.rrelu_


def rrelu(
    input: Tensor,
    lower: float = 1.0 / 8,
    upper: float = 1.0 / 3,
    training: bool = False,
    inplace: bool = False,
) -> Tensor:
    """Leaky ReLU with a random slope for each element in training, else with the mean slope.

    Like torch.nn.functional.rrelu. A slope is uniform between `lower` and `upper`. For the same
    seed, the slopes are not PyTorch's. The backward pass computes them again from a saved seed.

    Shape:
        any, with any strides; the result's strides are those of elementwise operators.
    Types:
        float32, float64, bfloat16, float16; CPU and CUDA; differentiable to any order.
    Special values:
        every input. rrelu(NaN) = NaN.
    Raises:
        NotImplementedError: the tensor is not dense, or has none of these types.
        RuntimeError: as in PyTorch, such as for an in-place call on a leaf that requires a
            gradient.
        ValueError: `lower` exceeds `upper`, or one of them is not finite.
    """
    if inplace:
        return _rrelu_(input, lower, upper, training)
    return _rrelu(input, lower, upper, training)


def rrelu_(
    input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False
) -> Tensor:
    """rrelu() in place: writes the result to `input` and returns `input`."""
    return _rrelu_(input, lower, upper, training)
'''

GLU_MODULE = '''class GLU(torch.nn.GLU):
    """Replaces torch.nn.GLU. See functional.glu()."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.glu(input, self.dim)
'''

RRELU_MODULE = '''class RReLU(torch.nn.RReLU):
    """Replaces torch.nn.RReLU. See functional.rrelu()."""

    def forward(self, input: Tensor) -> Tensor:
        bounds = float(self.lower), float(self.upper)
        return functional.rrelu(input, bounds[0], bounds[1], self.training, self.inplace)
'''


def functions(activations: list[str]) -> tuple[list[str], list[str]]:
    """Returns names and texts. A build without the sigmoid has no GLU."""
    names, texts = ["rrelu", "rrelu_"], [RRELU_FUNCTION]
    return (["glu", *names], [GLU_FUNCTION, *texts]) if "sigmoid" in activations else (names, texts)


def modules(activations: list[str]) -> tuple[list[str], list[str]]:
    names, texts = ["RReLU"], [RRELU_MODULE]
    return (["GLU", *names], [GLU_MODULE, *texts]) if "sigmoid" in activations else (names, texts)
