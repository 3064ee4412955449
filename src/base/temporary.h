// temporary.h — files and folders that are ours only until they get their name or are removed.
//
// A temporary of the file NAME lies beside it as "NAME.rn0123456789ab.tmp": twelve random hex
// digits, so nobody can wait for the name, and O_EXCL, so a link planted under it is not followed.
// Whoever writes it holds a lock (flock) on it. A process that is killed loses the lock and leaves
// the file; the next temporary of the same NAME removes it:
//
//     held:      open, locked                     -> stays
//     abandoned: our owner's, one name, unlocked  -> removed
//     anything else (a link, another owner's, a name of another form)  -> stays
//
// On a file system without locks nothing is known to be abandoned, so nothing is removed there.
#ifndef RN_BASE_TEMPORARY_H
#define RN_BASE_TEMPORARY_H

#include <ration/status.h>

#include <stddef.h>
#include <sys/types.h>

// What ".rn0123456789ab.tmp" adds to a name.
enum { RN_TEMPORARY_SUFFIX_BYTES = 19 };

// Removes abandoned temporaries of `path`, then makes a new one, empty, open for reading and
// writing, and locked until `*out_fd` is closed. `name` gets its path. RN_INVALID: too long; RN_IO.
RN_MUST_USE rn_status rn_temporary_create(const char *path, mode_t mode, char *name,
                                          size_t capacity, int *out_fd);
// The same for an unnamed file (O_TMPFILE) that is open as `fd`: gives it a temporary's name.
RN_MUST_USE rn_status rn_temporary_name(const char *path, int fd, char *name, size_t capacity);
// Removes abandoned temporaries of `path`; what cannot be removed stays.
void rn_temporary_sweep(const char *path);

// Makes "FOLDER/PREFIX" + 6 random characters, for this user alone, locked until `*out_fd` is
// closed. Abandoned folders of that form are removed first, with the plain files in them whose
// names end in `ending`; one that holds anything else stays. `name` gets its path.
RN_MUST_USE rn_status rn_temporary_folder(const char *folder, const char *prefix,
                                          const char *ending, char *name, size_t capacity,
                                          int *out_fd);

#endif
