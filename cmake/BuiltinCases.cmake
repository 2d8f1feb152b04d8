# Turns the smallest recorded cases into C arrays, for `palimpsa selftest` without a directory.
file(GLOB builtin_files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/golden/ops/*_tiny.safetensors"
     "${PROJECT_SOURCE_DIR}/tests/golden/ops/prim_*.safetensors"
     "${PROJECT_SOURCE_DIR}/tests/golden/ops/palimpsa_varlen_init.safetensors"
     "${PROJECT_SOURCE_DIR}/tests/golden/ops/*_forget20.safetensors")
set(arrays "")
set(rows "")
foreach(file IN LISTS builtin_files)
    get_filename_component(name "${file}" NAME_WE)
    file(READ "${file}" hex HEX)
    file(SIZE "${file}" size)
    string(REGEX REPLACE "(................................................................)" "\\1\n" hex "${hex}")
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," hex "${hex}")
    string(APPEND arrays "static const unsigned char case_${name}[] = {\n${hex}};\n")
    string(APPEND rows "    { \"${name}\", case_${name}, ${size} },\n")
endforeach()
file(GENERATE OUTPUT "${PROJECT_BINARY_DIR}/generated/builtin_cases.c"
     CONTENT "#include \"builtin_cases.h\"\n\n${arrays}\nconst builtin_case builtin_cases[] = {\n${rows}    { 0 }\n};\n")
target_sources(palimpsa_program PRIVATE "${PROJECT_BINARY_DIR}/generated/builtin_cases.c")
target_link_libraries(palimpsa_program PUBLIC PkgConfig::JANSSON)
