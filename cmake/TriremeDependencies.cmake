# Every dependency comes from the distribution; nothing is fetched by the build.
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(Threads REQUIRED)
set(MPI_DETERMINE_LIBRARY_VERSION TRUE)  # for `trireme --version`
if(TRIREME_MPI)
  find_package(MPI REQUIRED COMPONENTS C)
  # Only the C interface: the withdrawn C++ one would need a library of its own.
  target_compile_definitions(MPI::MPI_C INTERFACE OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
endif()
find_package(nlohmann_json 3.11 REQUIRED)
find_package(CLI11 REQUIRED)
find_package(spdlog REQUIRED)
find_package(fmt REQUIRED)
find_package(ZLIB REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET libzstd)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
find_package(OpenSSL 3 REQUIRED)
if(TRIREME_SERVING)
  pkg_check_modules(PROMETHEUS REQUIRED IMPORTED_TARGET prometheus-cpp-core)
  if(POLICY CMP0167)
    cmake_policy(SET CMP0167 NEW)  # Boost's own package file, not the module that CMake will drop
  endif()
  find_package(Boost 1.81 REQUIRED)  # headers only: Beast and Asio
endif()

# By its files: Debian 13's sentencepiece.pc requires protobuf-lite.pc, which its package does not depend on.
find_path(SENTENCEPIECE_INCLUDE_DIR sentencepiece_processor.h REQUIRED)
find_library(SENTENCEPIECE_LIBRARY sentencepiece REQUIRED)
find_library(SENTENCEPIECE_TRAIN_LIBRARY sentencepiece_train REQUIRED)
execute_process(COMMAND ${PKG_CONFIG_EXECUTABLE} --maximum-traverse-depth=1 --modversion sentencepiece OUTPUT_VARIABLE SENTENCEPIECE_VERSION
                ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
add_library(trireme_sentencepiece INTERFACE)
target_include_directories(trireme_sentencepiece SYSTEM INTERFACE ${SENTENCEPIECE_INCLUDE_DIR})
target_link_libraries(trireme_sentencepiece INTERFACE ${SENTENCEPIECE_LIBRARY} ${SENTENCEPIECE_TRAIN_LIBRARY})

find_path(DNNL_INCLUDE_DIR dnnl.hpp REQUIRED)
find_library(DNNL_LIBRARY dnnl REQUIRED)
add_library(trireme_dnnl INTERFACE)
target_include_directories(trireme_dnnl SYSTEM INTERFACE ${DNNL_INCLUDE_DIR})
target_link_libraries(trireme_dnnl INTERFACE ${DNNL_LIBRARY})
