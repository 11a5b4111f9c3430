/* What a kernel is launched with: one struct, without pointers, the same in C, CUDA C++ and Rust (args.rs, whose tests
 * compare). Whoever changes one builds the images anew.
 *
 * Buffers are given by their addresses; or, in a call of all ranks, each by the address of the entry of the rank that it is of, which the
 * kernel reads: then it does nothing unless the entries of all ranks are of this call, and of the turn of the rank's own. When it is through
 * it tells the others. */
#ifndef CCL_KERNELS_ARGS_H
#define CCL_KERNELS_ARGS_H

/* The most sources, and the most destinations, of a reduction. */
#define CCL_MOST_SOURCES 16
/* The most ranges of a copy. */
#define CCL_MOST_RANGES 64

/* Where the buffers of a rank's call are: in device memory, written by ccl_arrive. */
struct ccl_entry {
    unsigned long long send;
    unsigned long long recv;
    /* What the call is; 0: there was none. */
    unsigned long long call;
    /* The number of the call among all. */
    unsigned long long turn;
    /* Of rank 0's entry, what kernels have agreed on: the last turn that was of one call of all ranks; all bits set: since
     * then there was one that was not, and there is none any more. */
    unsigned long long agreed;
    /* Blocks of this rank's kernel that are through. */
    unsigned int done;
    unsigned int reserved;
};

/* By what a kernel tells others that it is through: bytes in memory that the host sees too, for whose sum streams wait. */
struct ccl_meeting {
    /* Two words of this rank's own, of 8 bytes each, for which its stream has waited: they become 0 before anything is told. */
    unsigned long long reset;
    /* Bytes that become 1. */
    unsigned long long told[CCL_MOST_SOURCES];
    unsigned int n;
    unsigned int reserved;
};

/* A call of all ranks, as a rank's kernel has it. */
struct ccl_call {
    /* What the call is; 0: there is none, and buffers are given by their addresses. */
    unsigned long long number;
    /* This rank's own entry. */
    unsigned long long own;
    /* Those of all ranks, in their order. */
    unsigned long long entries[CCL_MOST_SOURCES];
    /* A word of 4 bytes that becomes 1 where a kernel does nothing. */
    unsigned long long nobody;
    struct ccl_meeting meeting;
    unsigned int ranks;
    unsigned int reserved;
};

/* The beginning of a rank's call, by a kernel of one block. */
struct ccl_arrive_args {
    struct ccl_call call;
    /* What this rank's entry is to say; the turn is the next. */
    unsigned long long send;
    unsigned long long recv;
};

/* A reduction of `n` sources, in this order, whose result goes to `m` destinations; or several of them, side by side: one for each row
 * of the grid. */
struct ccl_reduce_args {
    /* Addresses, or entries. A destination may be a source of its row, exactly; any other overlap gives undefined values. */
    unsigned long long sources[CCL_MOST_SOURCES];
    unsigned long long destinations[CCL_MOST_SOURCES];
    /* What the elements of source k are multiplied by, where bit k of `scaled` is set: an element, at the lowest
     * address. */
    unsigned long long scalars[CCL_MOST_SOURCES];
    /* Elements. */
    unsigned long long count;
    /* So many bytes from the addresses, or from where the buffers of the entries begin. */
    unsigned long long source_at;
    unsigned long long destination_at;
    /* So many bytes further in each row. */
    unsigned long long source_step;
    unsigned long long destination_step;
    struct ccl_call call;
    unsigned int n;
    unsigned int m;
    unsigned int scaled;
    /* What a sum is divided by; 0: by nothing. */
    unsigned int ranks;
    /* 1: what was multiplied is rounded to an element before it is added. */
    unsigned int rounded;
    /* 1; or, of buffers that are given by their addresses, more. */
    unsigned int rows;
    /* How many addresses further a row's sources, and its destinations, begin; 0: all rows have the same. */
    unsigned int sources_apart;
    unsigned int destinations_apart;
};

/* A copy of `ranges` ranges. */
struct ccl_copy_args {
    unsigned long long from[CCL_MOST_RANGES];
    unsigned long long to[CCL_MOST_RANGES];
    unsigned long long bytes[CCL_MOST_RANGES];
    unsigned int ranges;
    unsigned int reserved;
};

/* An exchange of blocks with all ranks: with each so many bytes of this rank's send buffer for so many of the other's, both
 * read before either is written, so that all buffers may be sent from and received in. */
struct ccl_swap_args {
    /* Of each rank: from where on in the block that is for it, and how much. */
    unsigned long long begins[CCL_MOST_SOURCES];
    unsigned long long bytes[CCL_MOST_SOURCES];
    /* The blocks that are for it, and from it: from where on in this rank's buffers. */
    unsigned long long blocks[CCL_MOST_SOURCES];
    /* Where this rank's own block begins in the others' buffers. */
    unsigned long long own_at;
    /* Without a call, in which only the number of ranks is said: the addresses of the buffers of each rank, and which one this is. */
    unsigned long long sends[CCL_MOST_SOURCES];
    unsigned long long recvs[CCL_MOST_SOURCES];
    struct ccl_call call;
    unsigned int me;
    unsigned int reserved;
};

#endif
