# SPDX-License-Identifier: Apache-2.0 OR MIT
# What the trials share.

# Two ranks of Debian's Open MPI in two network namespaces: their witnesses exchange messages and name the provider.
first_message() {
    barewire run -n 2 --lab pair --library openmpi --explain -- true
}

# The doctor also names what this machine lacks, and may end with 3; Open MPI must work.
what_is_inside() {
    barewire --version | tee /tmp/version
    grep -q '^wire version [0-9]' /tmp/version
    barewire doctor --json >/tmp/doctor || [ $? = 3 ]
    grep '"what": "openmpi over barewire", "status": "ok"' /tmp/doctor
}

# A program of the user, over frames between two namespaces, each byte checked.
plain_job() {
    mpicc.openmpi -O2 /sources/pingpong.c -o /tmp/pingpong
    barewire run -n 2 --lab pair -- /tmp/pingpong 1000 1024
}
