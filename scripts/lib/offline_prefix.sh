# shellcheck shell=bash
# Lets a build find the libraries of an offline bundle. Sourced by gpu_check.sh.

# use_offline_prefix DIR: DIR/debs unpacked into DIR/prefix (once), and what CMake, pkg-config and the loader need
# to look there. Sets the array offline_options for CMake.
use_offline_prefix() {
  local prefix=$1/prefix lib include
  if [ ! -f "$prefix/complete" ]; then
    python3 -B scripts/lib/unpack_debs.py "$prefix" "$1"/debs/*.deb
    touch "$prefix/complete"
  fi
  lib=$(dirname "$(find "$prefix/usr/lib" -name 'libdnnl.so' | head -n 1)")
  include=$prefix/usr/include
  export PKG_CONFIG_LIBDIR=$lib/pkgconfig:$prefix/usr/share/pkgconfig PKG_CONFIG_SYSROOT_DIR=$prefix
  export LD_LIBRARY_PATH=$lib:$prefix/lib/${lib##*/}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  export PATH=$PATH:$prefix/usr/bin
  # MPI's compiler wrapper knows the paths it was installed with only: its header and library are named instead.
  offline_options=("-DCMAKE_PREFIX_PATH=$prefix/usr" "-DCMAKE_LIBRARY_PATH=$lib" "-DCMAKE_INCLUDE_PATH=$include"
    "-DCMAKE_EXE_LINKER_FLAGS=-Wl,-rpath-link,$lib:$prefix/lib/${lib##*/}"
    -DMPI_SKIP_COMPILER_WRAPPER=ON -DMPI_SKIP_GUESSING=ON -DMPI_C_LIB_NAMES=mpi
    "-DMPI_mpi_LIBRARY=$lib/openmpi/lib/libmpi.so" "-DMPI_C_HEADER_DIR=$lib/openmpi/include")
}
