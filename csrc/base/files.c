/* Reading small text files and looking for device nodes; each call can be made to fail by a test.
 */
#include "base/files.h"

#include "base/fault.h"

#include <glob.h>
#include <stdio.h>

bool hzb_file_read(const char *path, char *text, size_t size)
{
    FILE *file = hzb_fault_due(HZB_FAULT_FILE) ? NULL : fopen(path, "re");
    if (!file)
        return false;
    size_t length = fread(text, 1, size - 1, file);
    bool good = !ferror(file);
    fclose(file);
    text[length] = '\0';
    return good;
}

bool hzb_file_exists(const char *pattern)
{
    glob_t found;
    if (hzb_fault_due(HZB_FAULT_FILE) || glob(pattern, GLOB_NOSORT, NULL, &found))
        return false;
    globfree(&found);
    return true;
}
