"""64-bit digests of the operators' results over whole spaces of inputs.

Imported as a part of the package, and by itself by prove/ in a source tree, so its imports are
relative.
"""
