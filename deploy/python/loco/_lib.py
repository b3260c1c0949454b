"""The C library of loco.h, by ctypes. Nothing here decides anything."""
import ctypes as c
import os
from typing import Any

from . import _bin

WAIT, GO, GIVE, TAKE, SCORE, END = range(6)
ERRMSG_MAX = 256
LOG = c.CFUNCTYPE(None, c.c_void_p, c.c_char_p)


class Error(Exception):
    """A sentence: what happened, where, what to do."""


class Options(c.Structure):
    """struct loco_options"""
    _fields_ = [("size", c.c_size_t), ("state", c.c_char_p),
                ("join", c.c_char_p), ("run", c.c_char_p),
                ("locod_args", c.POINTER(c.c_char_p)),
                ("locod", c.c_char_p), ("locod_log", c.c_char_p),
                ("name", c.c_char_p), ("start_ms", c.c_uint32),
                ("reconnect_ms", c.c_uint32), ("measures", c.c_int),
                ("keep", c.c_int), ("log", LOG), ("data", c.c_void_p)]


class Info(c.Structure):
    """struct loco_info"""
    _fields_ = [("run_id", c.c_uint8 * 32), ("run_name", c.c_char * 65),
                ("preset", c.c_char * 65), ("n", c.c_uint64),
                ("n_tensors", c.c_uint32), ("batch", c.c_uint32),
                ("seq", c.c_uint32), ("vocab", c.c_uint32),
                ("tokens_most", c.c_uint64), ("period", c.c_uint32),
                ("started_pid", c.c_int32), ("reserved", c.c_uint64 * 8)]


class Tensor(c.Structure):
    """struct loco_tensor"""
    _fields_ = [("name", c.c_char_p), ("n_dims", c.c_uint32),
                ("zero", c.c_uint32), ("shape", c.c_uint64 * 8),
                ("offset", c.c_uint64), ("numel", c.c_uint64)]


class Todo(c.Structure):
    """struct loco_todo"""
    _fields_ = [("steps", c.c_uint64), ("inner_step", c.c_uint64),
                ("round", c.c_uint64), ("clock", c.c_uint64),
                ("run_tokens", c.c_uint64), ("reset", c.c_int32),
                ("code", c.c_uint32), ("text", c.c_char_p),
                ("rows", c.c_uint32), ("seq", c.c_uint32),
                ("tokens", c.POINTER(c.c_uint32)),
                ("targets", c.POINTER(c.c_uint32)),
                ("reserved", c.c_uint64 * 4)]


class Text(c.Structure):
    """struct loco_text"""
    _fields_ = [("rows", c.c_uint32), ("seq", c.c_uint32),
                ("tokens", c.POINTER(c.c_uint32)),
                ("targets", c.POINTER(c.c_uint32)),
                ("position", c.c_uint64), ("own", c.c_int32),
                ("zero", c.c_uint32), ("reserved", c.c_uint64 * 4)]


def load() -> Any:
    """libloco: $LOCO_LIBRARY, else the wheel's, else the system's."""
    lib = c.CDLL(os.environ.get("LOCO_LIBRARY") or _bin.path("libloco.so.0"))
    handle = c.c_void_p
    for name, result, arguments in (
            ("open", c.c_int, [c.POINTER(handle), c.POINTER(Options),
                               c.c_char_p]),
            ("ready", c.c_int, [handle, c.c_uint32]),
            ("errmsg", c.c_char_p, [handle]),
            ("info", c.c_int, [handle, c.POINTER(Info)]),
            ("tensor", c.c_int, [handle, c.c_uint32, c.POINTER(Tensor)]),
            ("check", c.c_int, [handle, c.POINTER(Tensor), c.c_uint32]),
            ("theta", c.c_void_p, [handle]),
            ("next", c.c_int, [handle, c.c_uint32, c.POINTER(Todo)]),
            ("step", c.c_int, [handle, c.c_uint64, c.c_double]),
            ("read", c.c_int, [handle, c.c_uint32, c.POINTER(Text)]),
            ("scored", c.c_int, [handle, c.c_double]),
            ("stop", c.c_int, [handle, c.c_uint32]),
            ("keep", None, [handle]),
            ("close", None, [handle])):
        function = getattr(lib, "loco_" + name)
        function.restype, function.argtypes = result, arguments
    return lib
