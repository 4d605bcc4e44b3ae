#!/usr/bin/env python3
"""CUDA's libraries, asked directly: where they and their headers are, versions, the device, one NCCL communicator.

    libraries.py --cmake     options for a build, by the headers found: one a line
"""
import ctypes
import glob
import os
import site
import sys
import sysconfig
from pathlib import Path

from phase import Failure

# Attributes of cudaDeviceGetAttribute (driver_types.h).
ATTRIBUTES = {"clock_khz": 13, "multiprocessors": 16, "ecc": 32, "memory_clock_khz": 36, "memory_bus_bits": 37,
              "l2_bytes": 38, "compute_major": 75, "compute_minor": 76, "shared_bytes_per_block_optin": 97}


# Of the libraries that the program opens when a device is: the major version is the one it was
# built with.
OPENED = ("cublasLt", "cudnn", "nccl")
HEADERS = {"cudnn.h": "TRIREME_CUDNN_INCLUDE_DIR", "nccl.h": "TRIREME_NCCL_INCLUDE_DIR"}


def toolkit():
    return os.environ.get("CUDA_HOME", "/usr/local/cuda")


def packages():
    """Folders of Python's packages."""
    return sorted({*site.getsitepackages(), sysconfig.get_paths()["purelib"], "/usr/lib/python3/dist-packages"})


def package_folders(kind):
    """Of Python's CUDA packages; kind: lib or include."""
    return [folder for p in packages() for folder in sorted(glob.glob(f"{p}/nvidia/*/{kind}"))]


def folders():
    """Where the toolkit and Python's CUDA packages keep libraries."""
    return [f"{toolkit()}/lib64", f"{toolkit()}/targets/x86_64-linux/lib", *package_folders("lib")]


def loaded_path(name):
    """The file of a library that this process has loaded."""
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        path = line.split(maxsplit=5)[-1]
        if os.path.basename(path).startswith(f"lib{name}.so"):
            return path
    return None


def place_of(path):
    if any(Path(path).is_relative_to(os.path.realpath(folder)) for folder in package_folders("lib")):
        return "Python's packages"
    return "toolkit" if Path(path).is_relative_to(os.path.realpath(toolkit())) else "loader's path"


def found_libraries():
    """{name: {"path", "from"}, or {"missing": why}} of the libraries that the program opens."""
    out = {}
    for name in OPENED:
        try:
            load(name)
            path = os.path.realpath(loaded_path(name))
            out[name] = {"path": path, "from": place_of(path)}
        except Failure as failure:
            out[name] = {"missing": str(failure)}
    return out


def loader_folders():
    """Folders for our programs' LD_LIBRARY_PATH: those of the libraries found, and what these load from beside them."""
    own = [os.path.dirname(found["path"]) for found in found_libraries().values() if "path" in found]
    return list(dict.fromkeys([*own, *package_folders("lib")]))


def header_folder(header):
    """Where a build finds it; None: nowhere."""
    usual = [f"{toolkit()}/include", "/usr/local/include", "/usr/include", "/usr/include/x86_64-linux-gnu"]
    for folder in [*usual, *package_folders("include")]:
        if os.path.exists(f"{folder}/{header}"):
            return folder
    return None


def load(name):
    """The library lib<name>.so.*, from the loader's path first."""
    # By its versioned name, which a host without -dev packages has.
    versioned = {"cublasLt": ["libcublasLt.so.13", "libcublasLt.so.12"], "cudnn": ["libcudnn.so.9"], "nccl": ["libnccl.so.2"]}
    candidates = [*versioned.get(name, []), f"lib{name}.so"]
    for folder in folders():
        candidates += sorted(glob.glob(f"{folder}/lib{name}.so*"), key=len)
    reason = "not found"
    for candidate in candidates:
        try:
            return ctypes.CDLL(candidate, mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            if os.path.exists(candidate):
                reason = str(error)
    raise Failure(f"lib{name}: {reason}")


def check(status, what):
    if status != 0:
        raise Failure(f"{what}: status {status}")


def number_by_pointer(library, function):
    value = ctypes.c_int(0)
    check(getattr(library, function)(ctypes.byref(value)), function)
    return value.value


def versions():
    """Each library's own answer, or why there is none."""
    def cublas():
        library = load("cublasLt")
        library.cublasLtGetVersion.restype = ctypes.c_size_t
        return library.cublasLtGetVersion()

    def cudnn():
        library = load("cudnn")
        library.cudnnGetVersion.restype = ctypes.c_size_t
        return library.cudnnGetVersion()

    asked = {"cudart": lambda: number_by_pointer(load("cudart"), "cudaRuntimeGetVersion"),
             "driver_cuda": lambda: number_by_pointer(load("cudart"), "cudaDriverGetVersion"),
             "cublasLt": cublas, "cudnn": cudnn,
             "nccl": lambda: number_by_pointer(load("nccl"), "ncclGetVersion")}
    out = {}
    for name, ask in asked.items():
        try:
            out[name] = ask()
        except Failure as failure:
            out[name] = str(failure)
    return out


def device_attributes():
    library = load("cudart")
    out = {}
    for name, number in ATTRIBUTES.items():
        value = ctypes.c_int(0)
        check(library.cudaDeviceGetAttribute(ctypes.byref(value), number, 0), f"cudaDeviceGetAttribute({name})")
        out[name] = value.value
    free, total = ctypes.c_size_t(0), ctypes.c_size_t(0)
    check(library.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total)), "cudaMemGetInfo")
    return {**out, "memory_bytes": total.value, "free_bytes": free.value}


def cudnn_device_json():
    """cuDNN's description of device 0: what the checks of its graphs on machines without a GPU are given."""
    library = load("cudnn")
    descriptor = ctypes.c_void_p()
    kind, device_id, json_text, int32, char = 38, 2700, 2702, 23, 24  # cudnn_graph.h
    check(library.cudnnBackendCreateDescriptor(kind, ctypes.byref(descriptor)), "cudnnBackendCreateDescriptor")
    device = ctypes.c_int32(0)
    check(library.cudnnBackendSetAttribute(descriptor, device_id, int32, ctypes.c_int64(1), ctypes.byref(device)),
          "cudnnBackendSetAttribute")
    check(library.cudnnBackendFinalize(descriptor), "cudnnBackendFinalize")
    size = ctypes.c_int64(0)
    check(library.cudnnBackendGetAttribute(descriptor, json_text, char, ctypes.c_int64(0), ctypes.byref(size), None),
          "cudnnBackendGetAttribute")
    text = ctypes.create_string_buffer(size.value + 1)
    check(library.cudnnBackendGetAttribute(descriptor, json_text, char, size, ctypes.byref(size), text),
          "cudnnBackendGetAttribute")
    return text.value.decode()


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]


def nccl_one_rank():
    """A communicator of one rank sums an array: the sum is the array."""
    cudart, nccl = load("cudart"), load("nccl")
    count = 1 << 20
    identity, comm = UniqueId(), ctypes.c_void_p()
    check(nccl.ncclGetUniqueId(ctypes.byref(identity)), "ncclGetUniqueId")
    check(cudart.cudaSetDevice(0), "cudaSetDevice")
    check(nccl.ncclCommInitRank(ctypes.byref(comm), 1, identity, 0), "ncclCommInitRank")
    host = (ctypes.c_float * count)(*(float(i % 1000) for i in range(count)))
    back = (ctypes.c_float * count)()
    source, target = ctypes.c_void_p(), ctypes.c_void_p()
    size = ctypes.c_size_t(4 * count)
    for pointer in (source, target):
        check(cudart.cudaMalloc(ctypes.byref(pointer), size), "cudaMalloc")
    check(cudart.cudaMemset(target, 255, size), "cudaMemset")
    check(cudart.cudaMemcpy(source, host, size, 1), "cudaMemcpy")
    float32, add = 7, 0
    check(nccl.ncclAllReduce(source, target, ctypes.c_size_t(count), float32, add, comm, None), "ncclAllReduce")
    check(cudart.cudaDeviceSynchronize(), "cudaDeviceSynchronize")
    check(cudart.cudaMemcpy(back, target, size, 2), "cudaMemcpy")
    for pointer in (source, target):
        check(cudart.cudaFree(pointer), "cudaFree")
    check(nccl.ncclCommDestroy(comm), "ncclCommDestroy")
    return {"ok": bytes(host) == bytes(back), "elements": count}


if __name__ == "__main__":
    if sys.argv[1:] != ["--cmake"]:
        sys.exit(__doc__)
    for one, option in HEADERS.items():
        where = header_folder(one)
        print(f"-D{option}={where}" if where else f"# no {one}")
