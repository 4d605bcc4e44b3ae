# Which instruction sets the CPU kernels are compiled for (engine/ops/backend/isa.h).
#
#   TRIREME_ISA   all       portable, avx2 and avx512: what releases and packages have (the default)
#                 native    portable and what this machine's processor uses: builds faster
#                 avx512, avx2, portable   portable and that one
set(TRIREME_ISA all CACHE STRING "Instruction sets of the CPU kernels: all, native, avx512, avx2 or portable")
set_property(CACHE TRIREME_ISA PROPERTY STRINGS all native avx512 avx2 portable)
if(NOT TRIREME_ISA MATCHES "^(all|native|avx512|avx2|portable)$")
  message(FATAL_ERROR "TRIREME_ISA=${TRIREME_ISA}: expected all, native, avx512, avx2 or portable")
endif()

# trireme_native_isas(OUT): the sets that this machine uses. AVX-512 without VNNI multiplies quantized blocks with AVX2.
function(trireme_native_isas out)
  if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    set(${out} "" PARENT_SCOPE)
    return()
  endif()
  set(source ${PROJECT_BINARY_DIR}/native_isas.cpp)
  file(CONFIGURE OUTPUT ${source} CONTENT "#include <cstdio>
#define HAS(name) __builtin_cpu_supports(name)
int main() {
  __builtin_cpu_init();
  const bool avx512 = HAS(\"avx512f\") && HAS(\"avx512bw\") && HAS(\"avx512dq\") && HAS(\"avx512vl\");
  const bool avx2 = HAS(\"avx2\") && HAS(\"fma\");
  if (avx2 && !(avx512 && HAS(\"avx512vnni\"))) std::fputs(\"avx2;\", stdout);
  if (avx512) std::fputs(\"avx512;\", stdout);
}
" @ONLY)
  try_run(run_code compiled ${PROJECT_BINARY_DIR}/native_isas ${source} RUN_OUTPUT_VARIABLE names)
  if(NOT compiled OR NOT run_code EQUAL 0)
    message(FATAL_ERROR "TRIREME_ISA=native: the processor's instruction sets cannot be read; give -DTRIREME_ISA=all")
  endif()
  set(${out} "${names}" PARENT_SCOPE)
endfunction()

if(TRIREME_ISA STREQUAL "all")
  set(TRIREME_ISAS portable avx2 avx512)
elseif(TRIREME_ISA STREQUAL "native")
  trireme_native_isas(TRIREME_ISAS)
  list(APPEND TRIREME_ISAS portable)
else()
  set(TRIREME_ISAS portable ${TRIREME_ISA})
endif()
list(REMOVE_ITEM TRIREME_ISAS "")
list(REMOVE_DUPLICATES TRIREME_ISAS)
list(SORT TRIREME_ISAS)
message(STATUS "Instruction sets of the CPU kernels: ${TRIREME_ISAS}")
foreach(isa avx2 avx512)
  string(TOUPPER ${isa} upper)
  set(TRIREME_BUILT_${upper} 0)
  if(isa IN_LIST TRIREME_ISAS)
    set(TRIREME_BUILT_${upper} 1)
  endif()
endforeach()
configure_file(${PROJECT_SOURCE_DIR}/engine/core/built_isas.h.in ${PROJECT_BINARY_DIR}/generated/engine/core/built_isas.h @ONLY)
