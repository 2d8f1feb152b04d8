# Puts src/device/kernels/*.cl into the library, as C arrays. Included by the project it adds the rule; run as a script
# (cmake -D to=FILE -D files=LIST -P) it writes the file.
if(NOT CMAKE_SCRIPT_MODE_FILE)
    file(GLOB device_kernels CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/device/kernels/*.cl")
    set(device_sources "${PROJECT_BINARY_DIR}/generated/device_kernels.c")
    add_custom_command(OUTPUT "${device_sources}" VERBATIM
                       COMMAND "${CMAKE_COMMAND}" -D "to=${device_sources}" -D "files=${device_kernels}" -P "${CMAKE_CURRENT_LIST_FILE}"
                       DEPENDS ${device_kernels} "${CMAKE_CURRENT_LIST_FILE}")
    return()
endif()

set(arrays "")
set(rows "")
foreach(file IN LISTS files)
    get_filename_component(name "${file}" NAME_WE)
    file(READ "${file}" hex HEX)
    file(SIZE "${file}" size)
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," hex "${hex}")
    string(APPEND arrays "static const unsigned char text_${name}[] = { ${hex} };\n")
    string(APPEND rows "    { \"${name}\", text_${name}, ${size} },\n")
endforeach()
file(WRITE "${to}" "#include \"device/opencl.h\"\n\n${arrays}\nconst pal_cl_source pal_cl_sources[] = {\n${rows}    { 0 }\n};\n")
