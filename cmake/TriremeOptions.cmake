# Language level, warnings and sanitizers for every target of ours.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

find_program(CCACHE_PROGRAM ccache)
set(TRIREME_CCACHE)
if(CCACHE_PROGRAM)
  # Paths below the checkout are hashed as relative ones: another checkout finds what this one compiled. Without the
  # sloppiness ccache takes nothing that uses a precompiled header.
  set(TRIREME_CCACHE ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=true
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_ctime,include_file_mtime ${CCACHE_PROGRAM})
  # A header that clang precompiled holds the paths of this build folder: another checkout would find nothing of what was
  # compiled with it.
  if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
    set(CMAKE_DISABLE_PRECOMPILE_HEADERS ON)
  endif()
endif()
foreach(language C CXX)
  if(NOT CMAKE_${language}_COMPILER_LAUNCHER)
    set(CMAKE_${language}_COMPILER_LAUNCHER ${TRIREME_CCACHE})
  endif()
endforeach()

define_property(TARGET PROPERTY TRIREME_FEWER_CHECKS INITIALIZE_FROM_VARIABLE TRIREME_FEWER_CHECKS)
add_library(trireme_options INTERFACE)
target_include_directories(trireme_options INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(trireme_options INTERFACE -Wall -Wextra -Wconversion -Wshadow -Wno-psabi
                       $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>  # it warns falsely about std::string (GCC bug 105329)
                       $<$<CXX_COMPILER_ID:Clang>:-Wno-sign-conversion>)  # GCC's -Wconversion does not mean signs
if(TRIREME_WERROR)
  target_compile_options(trireme_options INTERFACE -Werror)
endif()
if(TRIREME_SANITIZE)
  target_compile_options(trireme_options INTERFACE -fsanitize=address,undefined -fno-omit-frame-pointer
                         -fno-sanitize-recover=all)
  target_link_options(trireme_options INTERFACE -fsanitize=address,undefined)
  # Kernels and tests read no file of others: there AddressSanitizer sees pointers that lead nowhere, and compiling these
  # checks would take twice as long as all else. GCC's warning is false where code is instrumented.
  target_compile_options(trireme_options INTERFACE
    $<$<BOOL:$<TARGET_PROPERTY:TRIREME_FEWER_CHECKS>>:-fno-sanitize=null,alignment,pointer-overflow,object-size,nonnull-attribute,returns-nonnull-attribute>
    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
endif()
if(TRIREME_FUZZ)  # coverage of every library guides the fuzzer; its own main comes with the targets
  # vptr: AddressSanitizer sees objects that are no more.
  target_compile_options(trireme_options INTERFACE -fsanitize=fuzzer-no-link -fno-sanitize=vptr)
endif()

# A quarter of the time of compiling a file went into reading these.
set(TRIREME_COMMON_HEADERS <algorithm> <chrono> <filesystem> <functional> <map> <memory> <mutex> <optional> <span>
    <string> <variant> <vector>)
set(TRIREME_HEADERS_OWNER trireme_engine_core)

option(TRIREME_UNITY "Compile the sources of a folder several at a time" ON)

# trireme_unity(OUT target [TOGETHER] source...): what to compile instead of the sources: files that include up to eight
# of one folder, so that what they all include is read and instantiated once. TOGETHER: of one target, for small folders
# that include much. They are written below the build folder and include by path from the root: another checkout's are the
# same to the compiler's cache. tests/house/check_tidy.py reads them.
function(trireme_unity out target)
  cmake_parse_arguments(PARSE_ARGV 2 ARG "TOGETHER" "" "")
  if(NOT TRIREME_UNITY)
    set(${out} ${ARG_UNPARSED_ARGUMENTS} PARENT_SCOPE)
    return()
  endif()
  set(folders)
  foreach(source ${ARG_UNPARSED_ARGUMENTS})
    cmake_path(ABSOLUTE_PATH source)
    cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
    cmake_path(GET source PARENT_PATH folder)
    if(ARG_TOGETHER)
      set(folder ${target})
    endif()
    string(REPLACE / _ name ${folder})
    list(APPEND folders ${name})
    list(APPEND sources_of_${name} ${source})
  endforeach()
  list(REMOVE_DUPLICATES folders)
  set(units)
  foreach(name ${folders})
    list(LENGTH sources_of_${name} count)
    math(EXPR parts "(${count} + 7) / 8")
    set(i 0)
    foreach(source ${sources_of_${name}})
      math(EXPR part "${i} * ${parts} / ${count}")
      string(APPEND text_of_${name}_${part} "#include \"${source}\"\n")
      math(EXPR i "${i} + 1")
    endforeach()
    math(EXPR last "${parts} - 1")
    foreach(part RANGE ${last})
      set(unit ${PROJECT_BINARY_DIR}/unity/${target}/${name}_${part}.cpp)
      file(CONFIGURE OUTPUT ${unit} CONTENT "${text_of_${name}_${part}}" @ONLY)
      list(APPEND units ${unit})
    endforeach()
  endforeach()
  set(${out} ${units} PARENT_SCOPE)
endfunction()

# trireme_library(NAME [RECURSE [WITHOUT folder...]] [TOGETHER] [COLD [COMMON_HEADERS]] [DEPENDS target...] [PRIVATE_DEPENDS target...]):
# one static library from the .cpp files of this folder. WITHOUT: folders below it that this build leaves out. TOGETHER:
# units of several folders; names in anonymous namespaces are unique within the library. COLD: no loop
# in it is hot (a token is some hundred bytes of text, a request waits for the kernel), and optimizing it would take half
# of the time of compiling it. It may have precompiled headers of its own, or the COMMON_HEADERS that others have.
function(trireme_library name)
  cmake_parse_arguments(ARG "RECURSE;TOGETHER;COLD;COMMON_HEADERS" "" "WITHOUT;DEPENDS;PRIVATE_DEPENDS" ${ARGN})
  if(ARG_RECURSE)
    file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
    # Of the CUDA backend (cmake/TriremeCuda.cmake), and CPU kernels (engine/ops/CMakeLists.txt).
    list(FILTER sources EXCLUDE REGEX "/cuda/|\\.(cuda|cpu)\\.cpp$")
    foreach(folder ${ARG_WITHOUT})
      file(GLOB_RECURSE left_out CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*.cpp)
      list(REMOVE_ITEM sources ${left_out})
    endforeach()
  else()
    file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  endif()
  if(NOT sources)
    add_library(${name} INTERFACE)
    target_link_libraries(${name} INTERFACE trireme_options ${ARG_DEPENDS})
    return()
  endif()
  set(together)
  if(ARG_TOGETHER)
    set(together TOGETHER)
  endif()
  trireme_unity(units ${name} ${together} ${sources})
  add_library(${name} STATIC ${units})
  if(TRIREME_UNITY)  # it takes what a unit includes for headers
    target_compile_options(${name} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  endif()
  target_link_libraries(${name} PUBLIC trireme_options ${ARG_DEPENDS} PRIVATE ${ARG_PRIVATE_DEPENDS})
  # About what it inlines of a precompiled std::string GCC 12 warns falsely; AddressSanitizer sees what is true of it.
  target_compile_options(${name} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-stringop-overflow
                         -Wno-stringop-overread -Wno-array-bounds>)
  # Loops over elements are kernels (engine/ops/*/*.cpu.cpp), which have -O3; elsewhere it compiles a tenth longer for nothing.
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:$<IF:$<BOOL:${ARG_COLD}>,-O1,-O2>>
                         $<$<AND:$<CONFIG:Debug>,$<BOOL:${ARG_COLD}>,$<NOT:$<BOOL:${ARG_COMMON_HEADERS}>>>:-O0>)
  if(ARG_COLD AND NOT ARG_COMMON_HEADERS)
  elseif(name STREQUAL TRIREME_HEADERS_OWNER)
    target_precompile_headers(${name} PRIVATE ${TRIREME_COMMON_HEADERS})
  else()
    target_precompile_headers(${name} REUSE_FROM ${TRIREME_HEADERS_OWNER})
  endif()
endfunction()
