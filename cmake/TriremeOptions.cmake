# Language level, warnings and sanitizers for every target of ours.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Without these ccache takes nothing that uses a precompiled header.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_ctime,include_file_mtime ${CCACHE_PROGRAM})
endif()

add_library(trireme_options INTERFACE)
target_include_directories(trireme_options INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(trireme_options INTERFACE -Wall -Wextra -Wconversion -Wshadow -Wno-psabi
                       $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)  # it warns falsely about std::string (GCC bug 105329)
if(TRIREME_WERROR)
  target_compile_options(trireme_options INTERFACE -Werror)
endif()
if(TRIREME_SANITIZE)
  target_compile_options(trireme_options INTERFACE -fsanitize=address,undefined -fno-omit-frame-pointer
                         -fno-sanitize-recover=all)
  target_link_options(trireme_options INTERFACE -fsanitize=address,undefined)
  if(NOT TRIREME_FUZZ)
    # Compiling these checks takes half as long as all else. AddressSanitizer sees pointers that lead nowhere, and the
    # fuzz targets are built with all of them. GCC's warning is false where code is instrumented.
    target_compile_options(trireme_options INTERFACE
      -fno-sanitize=null,alignment,pointer-overflow,object-size,vptr,nonnull-attribute,returns-nonnull-attribute
      $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  endif()
endif()
if(TRIREME_FUZZ)  # coverage of every library guides the fuzzer; its own main comes with the targets
  # vptr: fuzz_config leaves classes out.
  target_compile_options(trireme_options INTERFACE -fsanitize=fuzzer-no-link -fno-sanitize=vptr)
endif()

# trireme_library(NAME [DEPENDS target...]): one static library from the .cpp files of this folder.
function(trireme_library name)
  cmake_parse_arguments(ARG "RECURSE" "" "DEPENDS;PRIVATE_DEPENDS" ${ARGN})
  if(ARG_RECURSE)
    file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
    list(FILTER sources EXCLUDE REGEX "/cuda/")  # of the CUDA backend (cmake/TriremeCuda.cmake)
  else()
    file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  endif()
  if(sources)
    add_library(${name} STATIC ${sources})
    target_link_libraries(${name} PUBLIC trireme_options ${ARG_DEPENDS} PRIVATE ${ARG_PRIVATE_DEPENDS})
  else()
    add_library(${name} INTERFACE)
    target_link_libraries(${name} INTERFACE trireme_options ${ARG_DEPENDS})
  endif()
endfunction()
