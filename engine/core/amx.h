// Permission to use AMX, the processor's matrix tiles: Linux enables their state for a process on
// request (arch_prctl, ARCH_REQ_XCOMP_PERM; kernel documentation, x86/xstate).
#pragma once

namespace trireme {

// Whether products of bfloat16 tiles may be computed: the processor has AMX-BF16 and the kernel has
// granted this process the tile state. Requests it once; thread-safe.
bool may_use_amx_bf16();

}  // namespace trireme
