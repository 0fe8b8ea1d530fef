"""Every exception tensormagic raises on purpose.

The tree::

    Exception
    └── TensorMagicError            the base: ``except tensormagic.TensorMagicError`` catches all of them
        ├── NotATensorError         an expression gave something that is not a tensor      (also a TypeError)
        ├── UnknownNameError        a name is not in the namespace                      (also a NameError)
        ├── UnknownTopicError       there is no page of help on what was asked for      (also a LookupError)
        ├── NoGraphError            a tensor has no autograd graph that could be drawn  (also a ValueError)
        ├── NonFiniteError          a run that stops at a NaN or Inf made one           (also an ArithmeticError)
        ├── TraceError              tracing was asked for in a way that cannot work     (also a RuntimeError)
        ├── SettingError            a setting has a value that means nothing            (also a ValueError)
        ├── ReportFormatError       a saved report cannot be read                       (also a ValueError)
        ├── SnapshotError           a file is no memory snapshot that can be read safely (also a ValueError)
        └── RequirementError        torch (or an optional package) is missing or too old (also an ImportError)

Every message says what was given, what was expected and what to do.
"""

from __future__ import annotations


class TensorMagicError(Exception):
    """Base class of all errors raised on purpose."""


class NotATensorError(TensorMagicError, TypeError):
    """What was given is neither a tensor nor anything that can be shown as one."""


class UnknownNameError(TensorMagicError, NameError):
    """A name that was asked for is not in the namespace."""


class UnknownTopicError(TensorMagicError, LookupError):
    """Help was asked for on something that the documentation has no page on."""


class NoGraphError(TensorMagicError, ValueError):
    """A tensor was asked for its autograd graph and has none."""


class NonFiniteError(TensorMagicError, ArithmeticError):
    """A traced run that was to stop at the first NaN or Inf made one."""


class TraceError(TensorMagicError, RuntimeError):
    """A trace was started, stopped or read in an order that cannot work."""


class SettingError(TensorMagicError, ValueError):
    """A setting was given a value that means nothing."""


class ReportFormatError(TensorMagicError, ValueError):
    """A saved report is of another kind, another version, or not a report at all."""


class SnapshotError(TensorMagicError, ValueError):
    """A file is no CUDA memory snapshot, is damaged, or asks for more than plain data."""


class RequirementError(TensorMagicError, ImportError):
    """A package that is needed is missing or too old."""
