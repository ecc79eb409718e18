"""Masks that OpenVINO miscomputes behind an integer product of queries and keys.

OpenVINO (seen with 2026.4) computes MatMul - Add - Softmax - MatMul in one kernel. Where both
operands of the first product are signed integers and the Add's second operand has one row for all
queries of all heads (which keys are padding), the kernel reads memory that is not the row's, and
the result has nothing to do with what the file says: with Mul, Max and Min too, and whether or not
the row is repeated by an Expand first. With the row as the first operand all is right.
"""

import onnx

COMMUTING = frozenset({"Add", "Mul", "Max", "Min"})
TURNED = frozenset({"Sub", "Div"})
"""Become an Add and a Mul where the second operand is constant."""


def put_first(node: onnx.NodeProto) -> None:
    """Swaps the two operands of a commuting node in place."""
    node.input[:] = [node.input[1], node.input[0]]
