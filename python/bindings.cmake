# palimpsa_add_bindings(INTERPRETER DIRECTORY): the target palimpsa_python, a module DIRECTORY/_native.abi3.so for every CPython from 3.10 on.
# The declarations come from the public headers, and the compiler compares them with the same headers.
set(bindings_source "${CMAKE_CURRENT_LIST_DIR}")
function(palimpsa_add_bindings interpreter directory)
    execute_process(COMMAND "${interpreter}" -c "import sysconfig; print(sysconfig.get_paths()['include'])"
                    OUTPUT_VARIABLE include OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
    get_filename_component(root "${bindings_source}" DIRECTORY)
    file(GLOB headers CONFIGURE_DEPENDS "${root}/include/palimpsa/*.h")
    set(code "${CMAKE_CURRENT_BINARY_DIR}/palimpsa_bindings.c")
    add_custom_command(OUTPUT "${code}" COMMAND "${interpreter}" "${bindings_source}/make_bindings.py" "${root}/include/palimpsa" "${code}"
                       DEPENDS "${bindings_source}/make_bindings.py" ${headers} VERBATIM)
    add_library(palimpsa_python MODULE "${code}")
    target_include_directories(palimpsa_python PRIVATE "${include}")
    target_link_libraries(palimpsa_python PRIVATE palimpsa_static)
    set_target_properties(palimpsa_python PROPERTIES PREFIX "" OUTPUT_NAME _native SUFFIX .abi3.so C_VISIBILITY_PRESET hidden
                          LIBRARY_OUTPUT_DIRECTORY "${directory}")
endfunction()
