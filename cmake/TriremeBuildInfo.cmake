# Sets TRIREME_GIT_COMMIT and TRIREME_LIBRARIES for `trireme --version`.

# trireme_git(OUT args...): the output of a git command in the source tree, empty where it fails.
function(trireme_git out)
  execute_process(COMMAND git ${ARGN} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} RESULT_VARIABLE failed
                  OUTPUT_VARIABLE text ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(failed)
    set(text)
  endif()
  set(${out} "${text}" PARENT_SCOPE)
endfunction()

trireme_git(TRIREME_GIT_COMMIT rev-parse --short=12 HEAD)
if(TRIREME_GIT_COMMIT)
  # Git appends to this file whenever HEAD moves; configuring again then refreshes the commit.
  trireme_git(head_log rev-parse --git-path logs/HEAD)
  cmake_path(ABSOLUTE_PATH head_log BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
  if(EXISTS ${head_log})
    set_property(DIRECTORY ${PROJECT_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${head_log})
  endif()
else()
  set(TRIREME_GIT_COMMIT unknown)
endif()

# trireme_header_version(OUT header macro...): the values of the macros, joined by dots.
function(trireme_header_version out header)
  file(READ ${header} text)
  set(parts)
  foreach(macro ${ARGN})
    string(REGEX MATCH "define[ \t]+${macro}[ \t]+([0-9]+)" matched "${text}")
    list(APPEND parts ${CMAKE_MATCH_1})
  endforeach()
  list(JOIN parts . parts)
  set(${out} ${parts} PARENT_SCOPE)
endfunction()

trireme_header_version(dnnl_version ${DNNL_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h
                       DNNL_VERSION_MAJOR DNNL_VERSION_MINOR DNNL_VERSION_PATCH)
set(mpi_version "MPI ${MPI_C_VERSION}")
if(NOT TRIREME_MPI)
  set(mpi_version "no MPI")
elseif(MPI_C_LIBRARY_VERSION_STRING MATCHES "Open MPI v([0-9.]+)")
  set(mpi_version "Open MPI ${CMAKE_MATCH_1}")
endif()
string(CONCAT TRIREME_LIBRARIES "oneDNN ${dnnl_version}, ${mpi_version}, SentencePiece ${SENTENCEPIECE_VERSION}, "
       "zlib ${ZLIB_VERSION_STRING}, zstd ${ZSTD_VERSION}, xxHash ${XXHASH_VERSION}")
