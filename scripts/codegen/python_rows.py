"""The row operators in the Python package: functions and modules with PyTorch's signatures."""

FUNCTION = '''_{name} = torch.ops.fastact.{operator}


def {name}(
    input: Tensor,
    dim: int | None = None,
    _stacklevel: int = 3,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """{definition} along `dim`, in `dtype` if it is given.

    Like torch.nn.functional.{name}. The bits of a row depend on the row alone.

    Shape:
        any, with any strides; the result is contiguous.
    Types:
        float32, float64, bfloat16, float16; CPU and CUDA; differentiable to any order. 16-bit types
        compute in float32 and are rounded once.
    Special values:
        {special}
    Raises:
        IndexError: there is no such dimension.
        NotImplementedError: `dtype`, or else the tensor's type, is none of these types.
    """
    if dim is None:
        dim = _get_softmax_dim("{name}", input.dim(), _stacklevel)
    return _{name}({argument}, dim, dtype)
'''

MODULE = '''class {module}(torch.nn.{module}):
    """Replaces torch.nn.{module}. See functional.{name}()."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.{name}(input, self.dim, _stacklevel=5)
'''

SOFTMAX_2D = '''class Softmax2d(torch.nn.Softmax2d):
    """Replaces torch.nn.Softmax2d. See functional.softmax()."""

    def forward(self, input: Tensor) -> Tensor:
        if input.dim() not in (3, 4):
            raise ValueError(
                f"fastact.nn.Softmax2d: expected input to be 3-D or 4-D, but got {input.dim()}-D"
            )
        return functional.softmax(input, -3, _stacklevel=5)
'''

NORM = '''_{name} = torch.ops.fastact.{name}


def {name}(
    input: Tensor,
    normalized_shape: list[int],
    weight: Tensor | None = None,
    {parameters},
) -> Tensor:
    """{definition}.

    Like torch.nn.functional.{name}. The bits of a row depend on the row alone; so do those of the
    gradient by input. {eps}

    Shape:
        input: any that ends with normalized_shape; {vectors}: normalized_shape. The result is
        contiguous.
    Types:
        float32, float64, bfloat16, float16; CPU and CUDA; differentiable to any order. 16-bit types
        compute in float32 and are rounded once. With a 16-bit input, {vectors} may be float32.
    Special values:
        {special}
    Raises:
        RuntimeError: a tensor has another shape or type, or is on another device.
        NotImplementedError: input has none of these types.
    """
    return _{name}(input, normalized_shape, weight, {arguments})
'''

ADDED_NORM = '''_add_{name} = torch.ops.fastact.add_{name}


def add_{name}(
    input: Tensor,
    residual: Tensor,
    normalized_shape: list[int],
    weight: Tensor | None = None,
    {parameters},
) -> tuple[Tensor, Tensor]:
    """{name}() of input + residual, and this sum, which is rounded once.

    The bits are those of `input + residual`, followed by {name}(), except those of a NaN in the
    sum. Without gradients, a CPU computes both in one pass over contiguous memory.

    Shape:
        residual has the shape of input, the others as in {name}(). Both results have the shape of
        input and are contiguous.
    Types:
        residual has the type of input, the others as in {name}().
    Special values:
        those of {name}().
    Raises:
        RuntimeError: a tensor has another shape or type, or is on another device.
        NotImplementedError: input has none of these types.
    """
    return _add_{name}(input, residual, normalized_shape, weight, {arguments})
'''

NORM_MODULE = '''class {module}(torch.nn.{module}):
    """Replaces torch.nn.{module}. See functional.{name}()."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.{name}(input, self.normalized_shape, self.weight, {members})
'''

GROUP_NORM = '''_group_norm = torch.ops.fastact.group_norm


def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-05,
) -> Tensor:
    """layer_norm() of each group of channels, with a weight and a bias for each channel.

    Like torch.nn.functional.group_norm. The bits of a group depend on the group alone; so do those
    of the gradient by input.

    Shape:
        input: [N, C, ...], where num_groups divides C; weight, bias: [C]. On a CPU, the result has
        input's memory format; on a GPU, it is contiguous.
    Types:
        float32, float64, bfloat16, float16; CPU and CUDA; differentiable to any order. 16-bit types
        compute in float32 and are rounded once. With a 16-bit input, weight and bias may be
        float32.
    Special values:
        NaN for a group with NaN or an infinity.
    Raises:
        ValueError: a group has only one element in the whole batch, as in PyTorch.
        RuntimeError: a tensor has another shape or type, or is on another device.
        NotImplementedError: input has none of these types.
    """
    if input.dim() >= 2 and num_groups > 0:
        samples = input.size(0) * input.size(1) // num_groups
        _verify_batch_size([samples, num_groups] + list(input.size()[2:]))
    return _group_norm(input, num_groups, weight, bias, eps)
'''

INSTANCE_NORM = '''_instance_norm = torch.ops.fastact.instance_norm


def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-05,
) -> Tensor:
    """group_norm() with one group for each channel; updates the running statistics, if given.

    Like torch.nn.functional.instance_norm. Without use_input_stats, PyTorch's batch_norm normalizes
    with the running statistics.

    Shape:
        input: [N, C, ...]; all others: [C].
    Types:
        those of group_norm().
    Special values:
        those of group_norm().
    Raises:
        ValueError: a channel of a sample has only one element.
        RuntimeError: a tensor has another shape or type, or is on another device.
        NotImplementedError: input has none of these types.
    """
    if use_input_stats:
        _verify_spatial_size(input.size())
    return _instance_norm(
        input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps
    )
'''

GROUP_NORM_MODULE = '''class GroupNorm(torch.nn.GroupNorm):
    """Replaces torch.nn.GroupNorm. See functional.group_norm()."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)
'''

INSTANCE_NORM_MODULE = '''class InstanceNorm{dimensions}d(torch.nn.InstanceNorm{dimensions}d):
    """Replaces torch.nn.InstanceNorm{dimensions}d. See functional.instance_norm()."""

    def _apply_instance_norm(self, input: Tensor) -> Tensor:
        return functional.instance_norm(
            input,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training or not self.track_running_stats,
            self.momentum if self.momentum is not None else 0.0,
            self.eps,
        )
'''

CROSS_ENTROPY = '''_cross_entropy = torch.ops.fastact.cross_entropy


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """The cross-entropy of input's softmax with the classes `target`, or with their probabilities.

    Like torch.nn.functional.cross_entropy. For indices without label smoothing, log-softmax is not
    stored, the bits of a loss depend on its row, target and weight alone, and those of a sum or
    mean on the losses and their order alone.

    Shape:
        input: [C] or [N, C, ...]; target: input's without C, or input's; weight: [C].
    Types:
        input: float32, float64, bfloat16, float16; CPU and CUDA; differentiable to any order.
        16-bit types compute in float32 and are rounded once. target: int64, uint8 or
        floating-point.
    Special values:
        NaN if a row that is not ignored contains NaN or +infinity, or is -infinity alone. The
        gradient of an ignored row is 0 whatever it contains.
    Raises:
        IndexError: an index is neither a class nor ignore_index (CPU).
        RuntimeError: a tensor has another shape or type, or is on another device.
        NotImplementedError: input has none of these types.
    """
    if size_average is not None or reduce is not None:
        reduction = _Reduction.legacy_get_string(size_average, reduce)
    number = _Reduction.get_enum(reduction)
    return _cross_entropy(input, target, weight, number, ignore_index, label_smoothing)
'''

CROSS_ENTROPY_LOSS = '''class CrossEntropyLoss(torch.nn.CrossEntropyLoss):
    """Replaces torch.nn.CrossEntropyLoss. See functional.cross_entropy()."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.cross_entropy(
            input,
            target,
            self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )
'''

_OF_NAN = "NaN if a row is -infinity alone, or contains +infinity or NaN."
_OF_NAN_OF_MINUS_X = "NaN if a row is +infinity alone, or contains -infinity or NaN."
ROWS = (
    {
        "name": "softmax",
        "module": "Softmax",
        "operator": "softmax",
        "argument": "input",
        "definition": "e^(x - max) / sum(e^(x - max))",
        "special": f"0 for -infinity; {_OF_NAN}",
    },
    {
        "name": "softmin",
        "module": "Softmin",
        "operator": "softmax",
        "argument": "-input",
        "definition": "Softmax of -x",
        "special": f"0 for +infinity; {_OF_NAN_OF_MINUS_X}",
    },
    {
        "name": "log_softmax",
        "module": "LogSoftmax",
        "operator": "log_softmax",
        "argument": "input",
        "definition": "The logarithm of softmax, x - max - log(sum(e^(x - max))),",
        "special": f"-infinity for -infinity; {_OF_NAN}",
    },
)

NORMS = (
    {
        "name": "rms_norm",
        "module": "RMSNorm",
        "definition": "x / sqrt(mean(x^2) + eps) * weight",
        "parameters": "eps: float | None = None",
        "arguments": "eps",
        "members": "self.eps",
        "eps": "The\n    default of eps is the machine epsilon of the type in which it computes.",
        "vectors": "weight",
        "special": "NaN for an infinity, 0 for finite elements beside it; NaN for a row with NaN.",
    },
    {
        "name": "layer_norm",
        "module": "LayerNorm",
        "definition": "(x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) * weight + bias",
        "parameters": "bias: Tensor | None = None,\n    eps: float = 1e-05",
        "arguments": "bias, eps",
        "members": "self.bias, self.eps",
        "eps": "",
        "vectors": "weight, bias",
        "special": "NaN for a row with NaN or an infinity.",
    },
)

INSTANCE_NORMS = [f"InstanceNorm{dimensions}d" for dimensions in (1, 2, 3)]
FUNCTIONS = [
    *(row["name"] for row in (*ROWS, *NORMS)),
    *(f"add_{norm['name']}" for norm in NORMS),
    *("group_norm", "instance_norm", "cross_entropy"),
]
MODULES = [
    *(row["module"] for row in (*ROWS, *NORMS)),
    *("Softmax2d", "GroupNorm", *INSTANCE_NORMS, "CrossEntropyLoss"),
]


def row_functions() -> list[str]:
    return [
        *(FUNCTION.format(**row) for row in ROWS),
        *(NORM.format(**norm).replace(" \n", "\n") for norm in NORMS),
        *(ADDED_NORM.format(**norm) for norm in NORMS),
        GROUP_NORM,
        INSTANCE_NORM,
        CROSS_ENTROPY,
    ]


def row_modules() -> list[str]:
    return [
        *(MODULE.format(**row) for row in ROWS),
        SOFTMAX_2D,
        *(NORM_MODULE.format(**norm) for norm in NORMS),
        GROUP_NORM_MODULE,
        *(INSTANCE_NORM_MODULE.format(dimensions=dimensions) for dimensions in (1, 2, 3)),
        CROSS_ENTROPY_LOSS,
    ]
