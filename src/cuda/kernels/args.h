/* What a kernel is launched with: one struct, without pointers, the same in C, CUDA C++ and Rust (args.rs, whose tests
 * compare). Whoever changes one builds the images anew.
 *
 * Buffers are given by their addresses; or, where `expected` is not 0, each by the address of the entry of the rank that it
 * is of, which the kernel reads: then it does nothing unless all these entries are of the call that is expected, and of the turn of the
 * rank's own. When it is through it tells the others. */
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

/* The beginning of a rank's call, by a kernel of one block. */
struct ccl_arrive_args {
    /* This rank's entry, and what it is to say; the turn is the next. */
    unsigned long long own;
    unsigned long long send;
    unsigned long long recv;
    unsigned long long call;
    /* A word of 4 bytes that becomes `number`; 0: none. */
    unsigned long long begun;
    struct ccl_meeting meeting;
    unsigned int number;
    unsigned int reserved;
};

/* A reduction of `n` sources, in this order, whose result goes to `m` destinations. */
struct ccl_reduce_args {
    /* Addresses, or entries. A destination may be a source, exactly; any other overlap gives undefined values. */
    unsigned long long sources[CCL_MOST_SOURCES];
    unsigned long long destinations[CCL_MOST_SOURCES];
    /* What the elements of source k are multiplied by, where bit k of `scaled` is set: an element, at the lowest
     * address. */
    unsigned long long scalars[CCL_MOST_SOURCES];
    /* Elements. */
    unsigned long long count;
    /* What the entries are to say; 0: there are addresses. */
    unsigned long long expected;
    /* So many bytes from where the buffers of the entries begin. */
    unsigned long long source_at;
    unsigned long long destination_at;
    /* This rank's own entry. */
    unsigned long long own;
    struct ccl_meeting meeting;
    unsigned int n;
    unsigned int m;
    unsigned int scaled;
    /* What a sum is divided by; 0: by nothing. */
    unsigned int ranks;
    /* 1: what was multiplied is rounded to an element before it is added. */
    unsigned int rounded;
    unsigned int reserved;
};

/* A copy of `ranges` ranges. */
struct ccl_copy_args {
    unsigned long long from[CCL_MOST_RANGES];
    unsigned long long to[CCL_MOST_RANGES];
    unsigned long long bytes[CCL_MOST_RANGES];
    unsigned int ranges;
    unsigned int reserved;
};

/* An exchange of blocks with `n` ranks: with each so many bytes of this rank's send buffer for so many of the other's, both
 * read before either is written, so that all buffers may be sent from and received in. */
struct ccl_swap_args {
    unsigned long long entries[CCL_MOST_SOURCES];
    /* Of each rank: from where on in the block that is for it, and how much. */
    unsigned long long begins[CCL_MOST_SOURCES];
    unsigned long long bytes[CCL_MOST_SOURCES];
    /* The blocks that are for it, and from it: from where on in this rank's buffers. */
    unsigned long long blocks[CCL_MOST_SOURCES];
    /* The entry of this rank itself, and where its block begins in the others' buffers. */
    unsigned long long own;
    unsigned long long own_at;
    unsigned long long expected;
    struct ccl_meeting meeting;
    unsigned int n;
    unsigned int reserved;
};

#endif
