"""Writes inline assembly of the formulas from nvcc's PTX of ops/codegen/one_element.cu.

    python scripts/codegen/inline_assembly.py PTX FAST_PTX --output assembly.json

The output has two parts: "ieee" for IEEE arithmetic, and "fast" for the forms with approximate
instructions. one_element.cu explains the names in them. Each contains:

    kernels   the assembly, the number of operands and, for a form in segments, the table that it
              reads. The assembly is one block in braces: $0 is the result, $1 and so on are the
              operands; @0 and so on stand for parameters, as PTX writes a float64. The table is
              called fastact_table and must be declared around the block.
    tables    the contents of the tables, as words of 64 bits in hexadecimal digits
    ordinary  the bounds of the parameters, for the kernels with ordinary parameters

A kernel that needs more than registers (a call, memory of its own) is omitted; it is called instead
of inlined. Needs only Python. CMake calls this script.
"""

import argparse
import json
import re
import struct
import sys
from pathlib import Path

ENTRY = re.compile(r"\.entry (\w+)\(.*?\)\s*\{(.*?)\}\s*(?=\.visible|//\s*\.globl|\Z)", re.S)
VARIABLE = re.compile(r"\.global \.align \d+ \.b8 (\w+)\[(\d+)\] = \{([^}]*)\}")
ORDINARY = "ordinary_of__"
TABLE = re.compile(r"\w*kPackedSegments\w*?\d(k\w+Segments)\w*")
# The block renames its registers: operands have names like %f1, which a declaration in the block
# would hide. A $ marks an operand.
REGISTER = re.compile(r"%(rd|rs|fd|f|r|p|h|b)(?=[<\d])")
LABEL = re.compile(r"\$L__(\w+)")

PARAMETER = re.compile(r"ld\.param\.u64 (%rd\d+), \[\w+_param_(\d+)\];")
ADDRESS = re.compile(r"cvta\.to\.global\.u64 (%rd\d+), (%rd\d+);")
LOAD = re.compile(r"ld\.global(?:\.nc)?\.(f32|f64) (%\w+), \[(%rd\d+)(?:\+(\d+))?\];")
# The address of a table, an address computed from it, and a load from there.
TABLE_ADDRESS = re.compile(r"mov\.u64 (%rd\d+), (\w*kPackedSegments\w*);")
IN_TABLE = re.compile(r"add\.s64 (%rd\d+), (%rd\d+), %rd\d+;")
TABLE_LOAD = re.compile(r"ld\.global\.nc\.(?:v2\.)?f32 (\{[^}]*\}|%f\d+), \[(%rd\d+)(?:\+\d+)?\];")
STORE = re.compile(r"st\.global\.(?:f32|f64|u32) \[(%rd\d+)\], (%\w+);")
WIDTHS = {"f32": 4, "f64": 8}
# The parameters of a kernel.
IN, PARAMETERS, OUT = range(3)
# Instructions and names that a block in registers cannot contain.
FOREIGN = re.compile(r"\b(call|ld\.|st\.|atom|bar\.|cvta)|%SP|\.local|\.shared")


def statements(body: str) -> list[str]:
    text = re.sub(r"//[^\n]*", "", body)
    text = re.sub(r"(\$L__\w+):", r"\1:;", text)
    # A nested block keeps its braces, because it may declare names of its own. The braces of a
    # vector of registers do not stand alone.
    text = re.sub(r"^(\s*)\{(?![^;]*\})", r"\1{;", text, flags=re.M)
    text = re.sub(r"^(\s*)\}|;\s*\}", r";};", text, flags=re.M)
    return [" ".join(statement.split()) for statement in text.split(";") if statement.strip()]


def assembly_of(body: str) -> dict | None:
    """Returns a kernel's assembly, or None if it has none."""
    addresses: dict[str, int] = {}  # register: which of the kernel's parameters it points to
    in_table: set[str] = set()  # registers that point into the table
    table = None
    code = []
    operands = 0
    stores = 0
    for text in statements(body):
        statement = text + ";"
        if statement == "ret;":
            continue
        if found := PARAMETER.fullmatch(statement):
            addresses[found[1]] = int(found[2])
        elif (found := ADDRESS.fullmatch(statement)) and found[2] in addresses:
            addresses[found[1]] = addresses[found[2]]
        elif (found := LOAD.fullmatch(statement)) and addresses.get(found[3]) == IN:
            index = int(found[4] or 0) // WIDTHS[found[1]]
            operands = max(operands, index + 1)
            code.append(f"mov.{found[1]} {found[2]}, ${index + 1};")
        elif (found := LOAD.fullmatch(statement)) and addresses.get(found[3]) == PARAMETERS:
            code.append(f"mov.f64 {found[2]}, @{int(found[4] or 0) // WIDTHS['f64']};")
        elif (found := STORE.fullmatch(statement)) and addresses.get(found[1]) == OUT:
            stores += 1
            code.append(f"mov.b{64 if found[2].startswith('%fd') else 32} $0, {found[2]};")
        elif found := TABLE_ADDRESS.fullmatch(statement):
            table = TABLE.fullmatch(found[2])[1]
            in_table.add(found[1])
            code.append(f"mov.u64 {found[1]}, fastact_table;")
        elif (found := IN_TABLE.fullmatch(statement)) and found[2] in in_table:
            in_table.add(found[1])
            code.append(statement)
        elif (found := TABLE_LOAD.fullmatch(statement)) and found[2] in in_table:
            code.append(statement)
        elif FOREIGN.search(statement):
            return None
        else:
            code.append(text if text in "{}" or text.endswith(":") else statement)
    if stores != 1:
        return None
    joined = LABEL.sub(r"fastact_\1", REGISTER.sub(r"%fastact_\1", " ".join(code)))
    kernel = {"operands": operands, "assembly": "{ " + joined + " }"}
    return kernel if table is None else kernel | {"table": table}


def unpacked(text: str, size: int, kind: str) -> list:
    """Returns a variable's bytes as numbers. PTX may omit zeros at the end."""
    data = bytes(int(byte) for byte in text.split(",")).ljust(size, b"\0")
    return [value for (value,) in struct.iter_unpack(f"<{kind}", data)]


def read(path: Path) -> dict:
    text = path.read_text()
    kernels, tables, ordinary = {}, {}, {}
    for name, body in ENTRY.findall(text):
        if "st.global" not in body:  # no such form
            continue
        found = assembly_of(body)
        if found is None:
            print(f"inline_assembly: {name} is called, not inlined", file=sys.stderr)
        else:
            kernels[name] = found
    for name, size, values in VARIABLE.findall(text):
        if found := TABLE.fullmatch(name):
            tables[found[1]] = [f"{word:016X}" for word in unpacked(values, int(size), "Q")]
        elif name.startswith(ORDINARY):
            numbers = unpacked(values, int(size), "d")
            # Text, because JSON has no infinities.
            ordinary[name.removeprefix(ORDINARY)] = [
                [repr(x) for x in numbers[i : i + 2]] for i in range(0, len(numbers), 2)
            ]
    return {"kernels": kernels, "tables": tables, "ordinary": ordinary}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("ieee", type=Path, help="PTX in IEEE arithmetic")
    parser.add_argument("fast", type=Path, help="PTX of the forms with approximate instructions")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    found = {"ieee": read(arguments.ieee), "fast": read(arguments.fast)}
    if not found["ieee"]["kernels"]:
        sys.exit(f"inline_assembly: expected kernels of one element, but {arguments.ieee} has none")
    arguments.output.write_text(json.dumps(found, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
