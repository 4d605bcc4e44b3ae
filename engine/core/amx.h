// Permission to use AMX, the processor's matrix tiles: Linux enables their state for a process on
// request (arch_prctl, ARCH_REQ_XCOMP_PERM; kernel documentation, x86/xstate).
#pragma once

namespace trireme {

// Returns whether this process may run AMX-BF16 instructions: the processor has them and the kernel
// has granted the tile state. The first call requests it; thread-safe.
bool may_use_amx_bf16();

}  // namespace trireme
