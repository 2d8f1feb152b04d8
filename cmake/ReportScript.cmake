# Turns web/chart.js and src/plot/report.js into one script, as a C array: a report draws with the page's code, and a page
# from a file cannot load modules. Included by the project it adds the rule; run as a script (cmake -D to=FILE
# -D files=LIST -P) it writes the file.
if(NOT CMAKE_SCRIPT_MODE_FILE)
    set(report_files "${PROJECT_SOURCE_DIR}/web/chart.js" "${PROJECT_SOURCE_DIR}/src/plot/report.js")
    set(report_script "${PROJECT_BINARY_DIR}/generated/report_script.c")
    add_custom_command(OUTPUT "${report_script}" VERBATIM
                       COMMAND "${CMAKE_COMMAND}" -D "to=${report_script}" -D "files=${report_files}" -P "${CMAKE_CURRENT_LIST_FILE}"
                       DEPENDS ${report_files} "${CMAKE_CURRENT_LIST_FILE}")
    target_sources(palimpsa_plot PRIVATE "${report_script}")
    return()
endif()

set(hex "")
foreach(file IN LISTS files)
    file(READ "${file}" text)
    # In hexadecimal, because lists and brackets of CMake would change the text: "\nexport " becomes "\n".
    file(READ "${file}" bytes HEX)
    if(text MATCHES "</script" OR text MATCHES "\nimport ")
        message(FATAL_ERROR "${file}: a report holds it as it is, so that it can neither import nor hold </script")
    endif()
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "\\1," bytes "${bytes}")
    string(REPLACE "0a,65,78,70,6f,72,74,20," "0a," bytes "${bytes}")
    string(APPEND hex "${bytes}")
endforeach()
string(REGEX REPLACE "([0-9a-f][0-9a-f])," "0x\\1," hex "${hex}")
file(WRITE "${to}" "#include \"plot/report.h\"\n\nconst unsigned char pal_report_script[] = { ${hex}0 };\n")
