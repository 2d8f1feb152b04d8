# What is made of the library for WebAssembly (cmake --preset wasm): the page's engine, and selftest for Node.
set(CMAKE_EXECUTABLE_SUFFIX .mjs)

# The page's: palimpsa.mjs and palimpsa.wasm, without file system on the host, thread or shared memory.
file(GLOB wasm_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/wasm/page*.c")
add_executable(palimpsa_page ${wasm_sources})
set_target_properties(palimpsa_page PROPERTIES OUTPUT_NAME palimpsa)
target_include_directories(palimpsa_page PRIVATE "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}/wasm")
target_link_libraries(palimpsa_page PRIVATE palimpsa_flags palimpsa_static PkgConfig::JANSSON)
target_link_options(palimpsa_page PRIVATE -O2 -sMODULARIZE=1 -sEXPORT_ES6=1 -sENVIRONMENT=worker -sALLOW_MEMORY_GROWTH=1
                    -sFORCE_FILESYSTEM=1 -sEXPORTED_RUNTIME_METHODS=FS,ccall
                    -sEXPORTED_FUNCTIONS=_malloc,_free -sTOTAL_STACK=1MB --no-entry)

# selftest under Node, which gives it the files of this machine.
set(program "${PROJECT_SOURCE_DIR}/cli")
add_executable(palimpsa_selftest wasm/selftest.c "${program}/cmd_selftest.c" "${program}/selftest_memory.c" "${program}/selftest_models.c"
               "${program}/selftest_prims.c" "${program}/options.c" "${program}/recorded_memory.c"
               "${program}/ranks.c" "${PROJECT_SOURCE_DIR}/src/comm/mpi_none.c")
set_target_properties(palimpsa_selftest PROPERTIES SUFFIX .js)
target_include_directories(palimpsa_selftest PRIVATE "${PROJECT_SOURCE_DIR}/src" "${program}")
target_link_libraries(palimpsa_selftest PRIVATE palimpsa_flags palimpsa_static PkgConfig::JANSSON)
target_link_options(palimpsa_selftest PRIVATE -O2 -sNODERAWFS=1 -sENVIRONMENT=node -sALLOW_MEMORY_GROWTH=1 -sEXIT_RUNTIME=1)
