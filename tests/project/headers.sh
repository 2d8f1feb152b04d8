#!/usr/bin/env bash
# Every public header compiles alone, as C11 and as C++17, without a warning.
set -euo pipefail
root=$1
for header in "$root"/include/palimpsa/*.h; do
    name=palimpsa/$(basename "$header")
    printf '#include "%s"\nint main(void) { return 0; }\n' "$name" | cc -x c -std=c11 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I"$root/include" -
    printf '#include "%s"\nint main() { return 0; }\n' "$name" | c++ -x c++ -std=c++17 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I"$root/include" -
    echo "$name: compiles alone as C and as C++"
done
