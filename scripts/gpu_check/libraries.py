"""CUDA's libraries, asked directly: versions, the device, one NCCL communicator."""
import ctypes
import glob
import os
import site
import sysconfig

from phase import Failure

# Attributes of cudaDeviceGetAttribute (driver_types.h).
ATTRIBUTES = {"clock_khz": 13, "multiprocessors": 16, "ecc": 32, "memory_clock_khz": 36, "memory_bus_bits": 37,
              "l2_bytes": 38, "compute_major": 75, "compute_minor": 76, "shared_bytes_per_block_optin": 97}


def folders():
    """Where the toolkit and Python's CUDA packages keep libraries."""
    toolkit = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    packages = {*site.getsitepackages(), sysconfig.get_paths()["purelib"], "/usr/lib/python3/dist-packages"}
    found = [f"{toolkit}/lib64", f"{toolkit}/targets/x86_64-linux/lib"]
    return found + [folder for p in sorted(packages) for folder in sorted(glob.glob(f"{p}/nvidia/*/lib"))]


def load(name):
    """The library lib<name>.so.*, from the loader's path first."""
    candidates = [f"lib{name}.so"]
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
