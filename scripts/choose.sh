# SPDX-License-Identifier: MIT
# Sourced by scripts that run named parts.
#   choose WHAT ALL...      leaves in `only` the parts that it names, or all; `list` prints them; ends at an unknown name
choose() {
    local what=$1 name
    shift
    if [ "${only[*]-}" = list ]; then
        printf '%s\n' "$@"
        exit 0
    fi
    for name in "${only[@]}"; do
        case " $* " in *" $name "*) ;; *)
            echo "${0##*/}: no $what is called '$name'; expected one of: $*" >&2
            exit 2 ;;
        esac
    done
    [ ${#only[@]} -gt 0 ] || only=("$@")
}
