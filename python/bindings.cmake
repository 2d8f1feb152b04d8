# palimpsa_add_bindings(INTERPRETER DIRECTORY): the target palimpsa_python, modules DIRECTORY/_native.abi3.so and, with the memory rules' plain C
# reference in double precision, _native64.abi3.so, for every CPython from 3.10 on.
# The declarations come from the public headers, and the compiler compares them with the same headers.
set(bindings_source "${CMAKE_CURRENT_LIST_DIR}")
function(palimpsa_add_bindings interpreter directory)
    execute_process(COMMAND "${interpreter}" -c "import sysconfig; print(sysconfig.get_paths()['include'])"
                    OUTPUT_VARIABLE include OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
    get_filename_component(root "${bindings_source}" DIRECTORY)
    file(GLOB headers CONFIGURE_DEPENDS "${root}/include/palimpsa/*.h")
    foreach(module IN ITEMS _native64 _native)
        set(code "${CMAKE_CURRENT_BINARY_DIR}/palimpsa${module}.c")
        add_custom_command(OUTPUT "${code}"
                           COMMAND "${interpreter}" "${bindings_source}/make_bindings.py" "${root}/include/palimpsa" ${module} "${code}"
                           DEPENDS "${bindings_source}/make_bindings.py" ${headers} VERBATIM)
        string(REPLACE "_native" "palimpsa_python" target ${module})
        add_library(${target} MODULE "${code}")
        target_include_directories(${target} PRIVATE "${include}")
        target_link_libraries(${target} PRIVATE palimpsa_hardened)
        set_target_properties(${target} PROPERTIES PREFIX "" OUTPUT_NAME ${module} SUFFIX .abi3.so C_VISIBILITY_PRESET hidden
                              LIBRARY_OUTPUT_DIRECTORY "${directory}")
    endforeach()
    target_link_libraries(palimpsa_python PRIVATE palimpsa_static)
    add_dependencies(palimpsa_python palimpsa_python64)

    file(GLOB_RECURSE rules CONFIGURE_DEPENDS "${root}/src/memory/*.c")
    list(FILTER rules EXCLUDE REGEX "_(avx[0-9a-z]+|neon)\\.c$")
    add_library(palimpsa_double OBJECT ${rules})
    set_target_properties(palimpsa_double PROPERTIES POSITION_INDEPENDENT_CODE ON C_STANDARD 11 C_EXTENSIONS OFF C_VISIBILITY_PRESET hidden)
    foreach(base IN ITEMS alloc arena context error log parallel processors signal_stack)
        target_sources(palimpsa_double PRIVATE "${root}/src/base/${base}.c")
    endforeach()
    target_include_directories(palimpsa_double PRIVATE "${root}/include" "${root}/src")
    target_compile_definitions(palimpsa_double PRIVATE PAL_PLAIN PAL_VERSION="${PROJECT_VERSION}" PAL_MATMUL_BACKEND="none")
    target_compile_options(palimpsa_double PRIVATE -include "${bindings_source}/double.h")
    target_link_libraries(palimpsa_double PRIVATE palimpsa_flags OpenMP::OpenMP_C)
    # What attention's pages are stored in: they are for models, and stay float.
    add_library(palimpsa_double_blocks OBJECT "${root}/src/base/blocks.c" "${root}/src/base/blocks_decode.c" "${root}/src/base/blocks_encode.c")
    set_target_properties(palimpsa_double_blocks PROPERTIES POSITION_INDEPENDENT_CODE ON C_STANDARD 11 C_EXTENSIONS OFF C_VISIBILITY_PRESET hidden)
    target_include_directories(palimpsa_double_blocks PRIVATE "${root}/include" "${root}/src")
    target_link_libraries(palimpsa_double_blocks PRIVATE palimpsa_flags)
    target_include_directories(palimpsa_python64 PRIVATE "${root}/include" "${bindings_source}")
    # its names are those of the other library
    target_link_libraries(palimpsa_python64 PRIVATE $<TARGET_OBJECTS:palimpsa_double> $<TARGET_OBJECTS:palimpsa_double_blocks> OpenMP::OpenMP_C m -Wl,-Bsymbolic)
endfunction()
