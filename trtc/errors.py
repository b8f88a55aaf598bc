"""The closed error tree. Every failure a user can cause or meet is one of these classes.

A message says what was got, what was expected and what to do about it. The classes that C++ also throws
(``TrtcError``, ``BuildError``, ``EngineError``, ``RequestError``, ``ExecutorError``) have one twin each in
``cpp/include/trtc/errors.h``; the bindings raise the Python class for the C++ one.
"""

from __future__ import annotations


class TrtcError(Exception):
    """Base of all errors that trtc raises on purpose."""


class ConfigError(TrtcError):
    """A setting, or a field of a checkpoint's config.json, is unknown, contradictory or unsupported."""


class CheckpointError(TrtcError):
    """A checkpoint cannot be read, or a tensor in it is missing, unexpected, mis-shaped or not finite."""


class RecipeError(TrtcError):
    """No recipe fits the model, or a recipe cannot express what the model's configuration asks for."""


class GraphError(TrtcError):
    """A graph breaks an invariant: raised by verification between the passes, always a bug of ours."""


class BuildError(TrtcError):
    """A target refused the graph or the engine could not be written."""


class EngineError(TrtcError):
    """An engine directory is damaged, incomplete or made for another version or machine."""


class RequestError(TrtcError):
    """A request is malformed or can never be served by this engine; the message names the field."""


class ExecutorError(TrtcError):
    """The executor failed while running, or was used after shutdown."""
