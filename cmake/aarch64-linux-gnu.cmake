# Cross compiling for ARM64 with Debian's packages: gcc-aarch64-linux-gnu (or, on top of it, clang with
# PALIMPSA_CROSS_CLANG), the libraries by multiarch, and QEMU's user mode to run what was built.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
if(PALIMPSA_CROSS_CLANG)
    set(CMAKE_C_COMPILER clang)
    set(CMAKE_C_COMPILER_TARGET aarch64-linux-gnu)
    set(openmp "${CMAKE_CURRENT_LIST_DIR}/../build-libraries/aarch64-linux-gnu-clang/lib") # scripts/clang_openmp_arm64.sh
    cmake_path(NORMAL_PATH openmp)
    set(CMAKE_EXE_LINKER_FLAGS_INIT "-L${openmp} -Wl,-rpath,${openmp}")
    set(CMAKE_SHARED_LINKER_FLAGS_INIT "${CMAKE_EXE_LINKER_FLAGS_INIT}")
    set(CMAKE_LIBRARY_PATH "${openmp}")
else()
    set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
endif()
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES PALIMPSA_CROSS_CLANG)

# Only what Debian installs for this architecture; never the libraries of the machine that builds.
set(CMAKE_C_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_SYSTEM_LIBRARY_PATH /usr/lib/aarch64-linux-gnu)
set(CMAKE_IGNORE_PATH /usr/lib /usr/lib64 /usr/lib/x86_64-linux-gnu /lib/x86_64-linux-gnu)
set(own_libraries "${CMAKE_CURRENT_LIST_DIR}/../build-libraries/aarch64-linux-gnu") # scripts/static_libraries.sh
set(ENV{PKG_CONFIG_LIBDIR}
    "${own_libraries}/lib/pkgconfig:/usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig")
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64)
