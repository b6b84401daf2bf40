"""64-bit digests of the operators' results over whole spaces of inputs.

Imports are relative, because prove/ imports these modules from a source tree without the package.
"""
