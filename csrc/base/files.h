/* The only callers of open: small text files of the system. */
#ifndef HZB_BASE_FILES_H
#define HZB_BASE_FILES_H

#include <stdbool.h>
#include <stddef.h>

/* The first `size - 1` bytes of a file, terminated; false when it cannot be read. */
bool hzb_file_read(const char *path, char *text, size_t size);
/* Whether anything matches a shell pattern such as "/dev/nvidia*". */
bool hzb_file_exists(const char *pattern);

#endif
