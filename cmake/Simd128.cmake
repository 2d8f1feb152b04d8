# WebAssembly's vectors are as wide as NEON's, so files that only pair simd_neon.h with a shared body serve both: here with
# simd_wasm.h. Those with instructions of their own stay ARM's, and the reference takes their place.
foreach(source IN LISTS sources)
    if(NOT source MATCHES "_neon\\.c$")
        continue()
    endif()
    file(READ "${source}" text)
    if(NOT text MATCHES "_simd\\.inc\"" OR text MATCHES "arm_neon\\.h")
        continue()
    endif()
    string(REPLACE "base/simd_neon.h" "base/simd_wasm.h" text "${text}")
    get_filename_component(name "${source}" NAME)
    string(REPLACE "_neon.c" "_simd128.c" name "${name}")
    file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/simd128/${name}" CONTENT "${text}" @ONLY)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${source}")
    list(APPEND sources "${PROJECT_BINARY_DIR}/simd128/${name}")
endforeach()

# What emscripten's C library lacks.
list(APPEND sources "${PROJECT_SOURCE_DIR}/wasm/missing.c")
set_source_files_properties("${PROJECT_SOURCE_DIR}/src/grammar/spellings.c" PROPERTIES COMPILE_OPTIONS "-include;${PROJECT_SOURCE_DIR}/wasm/missing.h")
