"""Copies and kernels through the CUDA driver's own library, without the toolkit."""

import ctypes
import mmap
import os
import time
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_void_p
from typing import Any, Protocol

# A loop of dependent multiplications on every SM, for as many rounds as it is told.
PTX = b"""
.version 6.3
.target sm_70
.address_size 64

.visible .entry busy(.param .u64 result, .param .u32 rounds)
{
    .reg .pred %more;
    .reg .f32 %x;
    .reg .u32 %round, %last;
    .reg .u64 %to;
    ld.param.u32 %last, [rounds];
    ld.param.u64 %to, [result];
    mov.u32 %round, 0;
    mov.f32 %x, 0f3F800000;
again:
    fma.rn.f32 %x, %x, 0f3F800001, 0f33D6BF95;
    fma.rn.f32 %x, %x, 0f3F7FFFFF, 0f33D6BF95;
    fma.rn.f32 %x, %x, 0f3F800001, 0f33D6BF95;
    fma.rn.f32 %x, %x, 0f3F7FFFFF, 0f33D6BF95;
    add.u32 %round, %round, 1;
    setp.lt.u32 %more, %round, %last;
    @%more bra again;
    st.f32 [%to], %x;
    ret;
}
\0"""
_SM_COUNT = 16  # CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
_KERNEL_S = 0.02


class CudaError(Exception):
    """The CUDA driver refused something."""


class Copier(Protocol):
    """What the phases ask of a GPU."""

    def to_gpu(self, size: int, pinned: bool) -> int: ...

    def to_host(self, size: int) -> int: ...

    def compute(self, wait: bool) -> None: ...

    def finish(self) -> None: ...


class Gpu:
    """One GPU with a context, pinned and pageable host memory of `host_bytes` each, and as much of its own."""

    def __init__(self, index: int, host_bytes: int) -> None:
        # The order of NVML, which knows no other.
        os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        try:
            self._cuda = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise CudaError(f"there is no CUDA driver here ({error})") from error
        self._call("cuInit", c_uint(0))
        device, self._context = c_int(), c_void_p()
        self._call("cuDeviceGet", byref(device), c_int(index))
        bus = ctypes.create_string_buffer(32)
        self._call("cuDeviceGetPCIBusId", bus, c_int(32), device)
        self.pci_bus_id = bus.value.decode()
        sms = c_int()
        self._call("cuDeviceGetAttribute", byref(sms), c_int(_SM_COUNT), device)
        self._blocks = sms.value * 4
        self._call("cuDevicePrimaryCtxRetain", byref(self._context), device)
        self._call("cuCtxSetCurrent", self._context)
        self.host_bytes = host_bytes
        self._memory, self._pinned = c_void_p(), c_void_p()
        self._call("cuMemAlloc_v2", byref(self._memory), c_size_t(host_bytes))
        self._call("cuMemAllocHost_v2", byref(self._pinned), c_size_t(host_bytes))
        self._pages = mmap.mmap(-1, host_bytes)
        self._pageable = c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(self._pages)))
        for place in (self._pinned, self._pageable):
            ctypes.memset(place, 1, host_bytes)
        self._copies, self._kernels = c_void_p(), c_void_p()
        for stream in (self._copies, self._kernels):
            self._call("cuStreamCreate", byref(stream), c_uint(1))
        module, self._busy = c_void_p(), c_void_p()
        self._call("cuModuleLoadData", byref(module), c_char_p(PTX))
        self._call("cuModuleGetFunction", byref(self._busy), module, b"busy")
        self._rounds = self._calibrated()

    def to_gpu(self, size: int, pinned: bool) -> int:
        """Copies host to device and waits for it; answers the bytes."""
        source = self._pinned if pinned else self._pageable
        self._call("cuMemcpyHtoDAsync_v2", self._memory, source, c_size_t(size), self._copies)
        self._call("cuStreamSynchronize", self._copies)
        return size

    def to_host(self, size: int) -> int:
        """Copies device to pinned host memory and waits for it; answers the bytes."""
        self._call("cuMemcpyDtoHAsync_v2", self._pinned, self._memory, c_size_t(size), self._copies)
        self._call("cuStreamSynchronize", self._copies)
        return size

    def compute(self, wait: bool) -> None:
        """One kernel of about 20 ms on all SMs; without `wait` it runs beside what follows."""
        self._launch(self._rounds)
        if wait:
            self._call("cuStreamSynchronize", self._kernels)

    def finish(self) -> None:
        """Waits for everything."""
        self._call("cuCtxSynchronize")

    def _launch(self, rounds: int) -> None:
        result, number = c_void_p(self._memory.value), c_uint(rounds)
        arguments = (c_void_p * 2)(ctypes.addressof(result), ctypes.addressof(number))
        grid = [c_uint(self._blocks), c_uint(1), c_uint(1), c_uint(256), c_uint(1), c_uint(1)]
        self._call("cuLaunchKernel", self._busy, *grid, c_uint(0), self._kernels, arguments, None)

    def _calibrated(self) -> int:
        rounds = 10_000
        self._launch(rounds)
        self.finish()
        while True:
            began = time.perf_counter()
            self._launch(rounds)
            self.finish()
            took = time.perf_counter() - began
            if took > _KERNEL_S / 4:
                return max(1, round(rounds * _KERNEL_S / took))
            rounds *= 2

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._cuda, name)(*arguments)
        if code:
            text = c_char_p()
            self._cuda.cuGetErrorString(c_int(code), byref(text))
            raise CudaError(f"{name}: {(text.value or b'unknown').decode()} ({code})")
