# The CUDA backend: whether it is built, for which GPUs, and how an executable gets it.
#
#   TRIREME_CUDA   AUTO  where a toolkit and a driver are found (the default)
#                  ON    the toolkit is required; a program built so runs without a driver too, on the CPU
#                  OFF
# cuDNN, NCCL and cuBLASLt are opened when a device is; only their headers are needed here.
set(TRIREME_CUDA AUTO CACHE STRING "CUDA backend: AUTO, ON or OFF")
set_property(CACHE TRIREME_CUDA PROPERTY STRINGS AUTO ON OFF)
if(NOT TRIREME_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "TRIREME_CUDA=${TRIREME_CUDA}: expected AUTO, ON or OFF")
endif()

# trireme_nvcc_version(OUT nvcc): "13.0"; empty where it does not answer.
function(trireme_nvcc_version out nvcc)
  execute_process(COMMAND ${nvcc} --version OUTPUT_VARIABLE text ERROR_QUIET RESULT_VARIABLE failed)
  string(REGEX MATCH "release ([0-9]+\\.[0-9]+)" matched "${text}")
  set(${out} "${CMAKE_MATCH_1}" PARENT_SCOPE)
endfunction()

set(TRIREME_LEAST_CUDA 12.4)
set(TRIREME_HAS_CUDA OFF)
if(TRIREME_CUDA STREQUAL ON)
  set(TRIREME_HAS_CUDA ON)
elseif(TRIREME_CUDA STREQUAL AUTO)
  include(CheckLanguage)
  find_library(TRIREME_CUDA_DRIVER NAMES libcuda.so.1 libcuda.so)  # toolkits' stubs are in no search path
  if(TRIREME_CUDA_DRIVER)
    check_language(CUDA)
    if(CMAKE_CUDA_COMPILER)
      trireme_nvcc_version(nvcc_version ${CMAKE_CUDA_COMPILER})
      if(nvcc_version VERSION_LESS TRIREME_LEAST_CUDA)
        message(STATUS "CUDA ${nvcc_version} is too old, ${TRIREME_LEAST_CUDA} is needed: building without it")
      else()
        set(TRIREME_HAS_CUDA ON)
      endif()
    endif()
  endif()
endif()

if(TRIREME_HAS_CUDA)
  # What a release supports: Ampere, Ada, Hopper, Blackwell, and whatever comes, compiled when it starts.
  set(blackwell 100-real 120-real)
  find_program(TRIREME_NVCC nvcc HINTS /usr/local/cuda/bin)
  if(TRIREME_NVCC)
    trireme_nvcc_version(nvcc_version ${TRIREME_NVCC})
    if(nvcc_version VERSION_LESS 12.8)
      set(blackwell)  # is not known to it
    endif()
  endif()
  set(CMAKE_CUDA_ARCHITECTURES 80-real 89-real 90a-real ${blackwell} 90-virtual CACHE STRING "GPU architectures")
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/cmake/keep_ptxas_report.py
      ${TRIREME_CCACHE})
  enable_language(CUDA)
  if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS TRIREME_LEAST_CUDA)
    message(FATAL_ERROR "CUDA ${CMAKE_CUDA_COMPILER_VERSION} at ${CMAKE_CUDA_COMPILER}: "
                        "${TRIREME_LEAST_CUDA} or later is needed; or -DTRIREME_CUDA=OFF")
  endif()
  find_package(CUDAToolkit REQUIRED)
  find_path(TRIREME_CUDNN_INCLUDE_DIR cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_path(TRIREME_NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
endif()

# CMake 3.25 does not pass C++20 on to nvcc 13. Spills and local memory are errors: they are what makes a
# kernel slow without a word.
set(TRIREME_NVCC_OPTIONS -std=c++20 --expt-relaxed-constexpr -O3 -lineinfo
    -Xcompiler=-Wall,-Wextra,-Wno-psabi "-Xptxas=-v,-warn-spills,-warn-lmem-usage")
if(TRIREME_WERROR)
  list(APPEND TRIREME_NVCC_OPTIONS --Werror=all-warnings -Xcompiler=-Werror -Xptxas=-Werror)
endif()

# trireme_cuda: the backend's objects, which an executable links whole (engine/core/device_memory.h).
function(trireme_cuda_library)
  if(NOT TRIREME_HAS_CUDA)
    return()
  endif()
  get_property(sources GLOBAL PROPERTY TRIREME_CUDA_SOURCES)
  if(NOT TRIREME_NCCL_INCLUDE_DIR)  # its functions stay absent, and a run says "built without NCCL"
    list(FILTER sources EXCLUDE REGEX "/parallel/comm/cuda/")
  endif()
  add_library(trireme_cuda OBJECT ${sources})
  set_target_properties(trireme_cuda PROPERTIES CUDA_STANDARD_REQUIRED OFF)  # see TRIREME_NVCC_OPTIONS
  target_include_directories(trireme_cuda PRIVATE ${PROJECT_SOURCE_DIR})
  target_include_directories(trireme_cuda SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
  target_compile_options(trireme_cuda PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:${TRIREME_NVCC_OPTIONS}>)
  target_compile_definitions(trireme_cuda PRIVATE TRIREME_CUDA_LIBRARY_DIR="${CUDAToolkit_LIBRARY_DIR}")
  set(cpp_options $<TARGET_PROPERTY:trireme_options,INTERFACE_COMPILE_OPTIONS>)
  target_compile_options(trireme_cuda PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${cpp_options}>")
  if(TRIREME_CUDNN_INCLUDE_DIR)
    target_include_directories(trireme_cuda SYSTEM PRIVATE ${TRIREME_CUDNN_INCLUDE_DIR})
    target_compile_definitions(trireme_cuda PRIVATE TRIREME_CUDNN=1)
  endif()
  target_link_libraries(trireme_cuda INTERFACE trireme_parallel)  # parallel/comm/cuda/ calls it
  if(TRIREME_NCCL_INCLUDE_DIR)
    target_include_directories(trireme_cuda SYSTEM PRIVATE ${TRIREME_NCCL_INCLUDE_DIR})
    target_compile_definitions(trireme_cuda PRIVATE TRIREME_NCCL=1)
  endif()
endfunction()

# trireme_link_cuda(executable): links the backend where it is built.
function(trireme_link_cuda target)
  if(TARGET trireme_cuda)
    target_link_libraries(${target} PRIVATE trireme_cuda CUDA::cudart_static ${CMAKE_DL_LIBS})
  endif()
endfunction()
