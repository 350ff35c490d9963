/* The loader library, the instance, the listing of devices, and failed calls in words. The one file
   that volk is compiled into. */
#define VOLK_IMPLEMENTATION
#include "vulkan/loader.h"

#include "base/alloc.h"
#include "base/files.h"
#include "base/threads.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEPT_MESSAGES 256
#define LAYER_NAME "VK_LAYER_KHRONOS_validation"
#define SUBSET_REMEDY                                                                              \
    "A container that was given only some of the machine's GPUs can fail here: give it all of "    \
    "them"

/* How long a fork waits for the loader. A driver that forks while it is opened does so in vain. */
enum { FORK_MS = 1000 };

static struct {
    struct hzb_lock lock;
    bool library;     /* libvulkan is in the process, for good */
    uint32_t version; /* that the instance is asked for */
    pid_t owner;      /* the process that made the instance; 0: there is none */
    bool ended;       /* for good, at the exit of the process */
    VkInstance handle;
    VkDebugUtilsMessengerEXT messenger;
    VkPhysicalDevice *devices;
    struct hzb_device_info *records;
    uint32_t count;
} instance;

static _Thread_local bool held_for_fork;

/* The validation layer calls back while `instance` is locked: its messages have their own lock. */
static struct {
    struct hzb_mutex lock;
    char *texts[KEPT_MESSAGES];
    uint32_t first, count;
} messages = {.lock = HZB_MUTEX_INIT};

static atomic_long live_objects;

/* ---- failed calls --------------------------------------------------------------------------- */

const char *hzb_result_name(VkResult result)
{
    switch (result) {
#define NAME(name)                                                                                 \
    case name:                                                                                     \
        return #name
        NAME(VK_SUCCESS);
        NAME(VK_NOT_READY);
        NAME(VK_TIMEOUT);
        NAME(VK_EVENT_SET);
        NAME(VK_EVENT_RESET);
        NAME(VK_INCOMPLETE);
        NAME(VK_ERROR_OUT_OF_HOST_MEMORY);
        NAME(VK_ERROR_OUT_OF_DEVICE_MEMORY);
        NAME(VK_ERROR_INITIALIZATION_FAILED);
        NAME(VK_ERROR_DEVICE_LOST);
        NAME(VK_ERROR_MEMORY_MAP_FAILED);
        NAME(VK_ERROR_LAYER_NOT_PRESENT);
        NAME(VK_ERROR_EXTENSION_NOT_PRESENT);
        NAME(VK_ERROR_FEATURE_NOT_PRESENT);
        NAME(VK_ERROR_INCOMPATIBLE_DRIVER);
        NAME(VK_ERROR_TOO_MANY_OBJECTS);
        NAME(VK_ERROR_FORMAT_NOT_SUPPORTED);
        NAME(VK_ERROR_FRAGMENTED_POOL);
        NAME(VK_ERROR_UNKNOWN);
        NAME(VK_ERROR_OUT_OF_POOL_MEMORY);
        NAME(VK_ERROR_INVALID_EXTERNAL_HANDLE);
        NAME(VK_ERROR_FRAGMENTATION);
        NAME(VK_ERROR_INVALID_OPAQUE_CAPTURE_ADDRESS);
        NAME(VK_PIPELINE_COMPILE_REQUIRED);
        NAME(VK_ERROR_VALIDATION_FAILED_EXT);
        NAME(VK_ERROR_INVALID_SHADER_NV);
        NAME(VK_ERROR_NOT_PERMITTED_KHR);
#undef NAME
    default:
        return "an unknown VkResult";
    }
}

const char *hzb_function_name(const char *expression)
{
    const char *name = expression;
    for (const char *c = expression; *c; c++)
        if (*c == '.' || *c == '>')
            name = c + 1;
    return name;
}

static enum hzb_status status_of(VkResult result)
{
    switch (result) {
    case VK_ERROR_OUT_OF_HOST_MEMORY:
    case VK_ERROR_OUT_OF_DEVICE_MEMORY:
    case VK_ERROR_OUT_OF_POOL_MEMORY:
        return HZB_OUT_OF_MEMORY;
    case VK_ERROR_DEVICE_LOST:
        return HZB_DEVICE_LOST;
    default:
        return HZB_VULKAN_FAILED;
    }
}

static const char *remedy_of(enum hzb_status status)
{
    switch (status) {
    case HZB_OUT_OF_MEMORY:
        return ": free some memory, or build fewer or smaller frames at a time";
    case HZB_DEVICE_LOST:
        return ": the driver gave the device up (a reset, or work that ran too long; the system "
               "log "
               "may say which): make a new context";
    default:
        return "";
    }
}

enum hzb_status hzb_vulkan_fail(struct hzb_error *err, VkResult result, const char *function)
{
    enum hzb_status status = status_of(result);
    const char *name = hzb_result_name(result);
    hzb_fail(err, status, "%s failed: %s (%d)%s", function, name, result, remedy_of(status));
    err->code = result;
    err->result = name;
    err->function = function;
    return status;
}

VkResult hzb_planted_result(void)
{
    if (hzb_fault_due(HZB_FAULT_VULKAN))
        return VK_ERROR_OUT_OF_DEVICE_MEMORY;
    return hzb_fault_due(HZB_FAULT_DEVICE_LOST) ? VK_ERROR_DEVICE_LOST : VK_SUCCESS;
}

static void __attribute__((format(printf, 2, 3))) append(struct hzb_error *err, const char *format,
                                                         ...)
{
    size_t length = strlen(err->message);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(err->message + length, sizeof(err->message) - length, format, arguments);
    va_end(arguments);
}

/* What may keep the loader from drivers and devices that are there. */
static void append_surroundings(struct hzb_error *err)
{
    static const char *const selectors[] = {"VK_DRIVER_FILES", "VK_ICD_FILENAMES"};
    for (size_t i = 0; i < sizeof(selectors) / sizeof(*selectors); i++) {
        const char *value = getenv(selectors[i]);
        if (value && *value)
            append(err, " %s is set to \"%s\": no driver but those is tried.", selectors[i], value);
    }
    bool nvidia = hzb_file_exists("/dev/nvidia*");
    bool dri = hzb_file_exists("/dev/dri");
    if (nvidia || dri)
        append(err, " %s here: there seems to be a GPU whose Vulkan driver is missing.",
               !dri      ? "/dev/nvidia* is"
               : !nvidia ? "/dev/dri is"
                         : "/dev/nvidia* and /dev/dri are");
    append(err, " In a container with an NVIDIA GPU, the driver needs the \"graphics\" capability "
                "(NVIDIA_DRIVER_CAPABILITIES=compute,utility,graphics), and without X an ICD file "
                "that names libEGL_nvidia.so.0, with the packages libegl1 and libxext6 installed.");
}

static enum hzb_status fail_no_loader(struct hzb_error *err)
{
    return hzb_fail(
        err, HZB_LOADER_NOT_FOUND,
        "the Vulkan loader (libvulkan.so.1) was not found: install it (Debian, Ubuntu: "
        "apt-get install libvulkan1) and a driver (the GPU vendor's, or apt-get install "
        "mesa-vulkan-drivers, which can also run on the processor alone)");
}

static enum hzb_status fail_no_device(struct hzb_error *err, const char *seen)
{
    hzb_fail(
        err, HZB_NO_DEVICE,
        "no Vulkan device: drivers were loaded, but %s. Look at `vulkaninfo --summary`; a driver "
        "that runs on the processor always has a device (Debian, Ubuntu: apt-get install "
        "mesa-vulkan-drivers). %s.",
        seen, SUBSET_REMEDY);
    append_surroundings(err);
    return err->status;
}

/* Give a failure to make the instance or to list its devices its cause and remedy. */
static enum hzb_status explain(struct hzb_error *err)
{
    if (err->code == VK_ERROR_INCOMPATIBLE_DRIVER) {
        err->status = HZB_NO_DEVICE;
        append(err, ": no Vulkan driver could be loaded. Install one: the GPU vendor's, or Mesa's "
                    "(Debian, Ubuntu: apt-get install mesa-vulkan-drivers), which can also run on "
                    "the processor alone.");
        append_surroundings(err);
    } else if (err->code == VK_ERROR_LAYER_NOT_PRESENT) {
        hzb_fail(err, HZB_FAILED,
                 "HZB_VALIDATION=1 asks for %s, which is not installed: apt-get install "
                 "vulkan-validationlayers (Debian, Ubuntu), or unset HZB_VALIDATION",
                 LAYER_NAME);
    } else if (err->status == HZB_VULKAN_FAILED &&
               !strcmp(err->function, "vkEnumeratePhysicalDevices")) {
        if (err->code == VK_ERROR_INITIALIZATION_FAILED) /* how loaders say that there is none */
            return fail_no_device(err, "none of them has a device (vkEnumeratePhysicalDevices gave "
                                       "VK_ERROR_INITIALIZATION_FAILED)");
        append(err, ": %s", SUBSET_REMEDY);
    }
    return err->status;
}

void hzb_vulkan_count(int change) { atomic_fetch_add(&live_objects, change); }

long hzb_live_vulkan_objects(void) { return atomic_load(&live_objects); }

/* ---- messages of the validation layer ------------------------------------------------------- */

static VKAPI_ATTR VkBool32 VKAPI_CALL keep_message(VkDebugUtilsMessageSeverityFlagBitsEXT severity,
                                                   VkDebugUtilsMessageTypeFlagsEXT types,
                                                   const VkDebugUtilsMessengerCallbackDataEXT *data,
                                                   void *user)
{
    (void)severity;
    (void)types;
    (void)user;
    size_t size = strlen(data->pMessage) + 1;
    hzb_mutex_take(&messages.lock);
    char *text = messages.count < KEPT_MESSAGES ? hzb_calloc(size, 1) : NULL;
    if (text) {
        memcpy(text, data->pMessage, size);
        messages.texts[(messages.first + messages.count++) % KEPT_MESSAGES] = text;
    }
    hzb_mutex_drop(&messages.lock);
    return VK_FALSE;
}

char *hzb_validation_take(void)
{
    char *text = NULL;
    hzb_mutex_take(&messages.lock);
    if (messages.count) {
        text = messages.texts[messages.first];
        messages.first = (messages.first + 1) % KEPT_MESSAGES;
        messages.count--;
    }
    hzb_mutex_drop(&messages.lock);
    return text;
}

/* General messages are left out: they are the loader's, about drivers and layers that it found. */
static const VkDebugUtilsMessengerCreateInfoEXT messenger_info = {
    .sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT,
    .messageSeverity = VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT |
                       VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT,
    .messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT |
                   VK_DEBUG_UTILS_MESSAGE_TYPE_PERFORMANCE_BIT_EXT,
    .pfnUserCallback = keep_message,
};

/* ---- devices -------------------------------------------------------------------------------- */

const char *hzb_device_kind_name(enum hzb_device_kind kind)
{
    static const char *const names[] = {
        [HZB_KIND_DISCRETE] = "discrete", [HZB_KIND_INTEGRATED] = "integrated",
        [HZB_KIND_VIRTUAL] = "virtual",   [HZB_KIND_NATIVE] = "native",
        [HZB_KIND_SOFTWARE] = "software", [HZB_KIND_OTHER] = "other",
    };
    return names[kind];
}

static enum hzb_device_kind kind_of(VkPhysicalDeviceType type)
{
    switch (type) {
    case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU:
        return HZB_KIND_DISCRETE;
    case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU:
        return HZB_KIND_INTEGRATED;
    case VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU:
        return HZB_KIND_VIRTUAL;
    case VK_PHYSICAL_DEVICE_TYPE_CPU:
        return HZB_KIND_SOFTWARE;
    default:
        return HZB_KIND_OTHER;
    }
}

bool hzb_compute_family(VkPhysicalDevice physical, uint32_t *family, uint32_t *timestamp_bits)
{
    VkQueueFamilyProperties families[32];
    uint32_t count = sizeof(families) / sizeof(*families);
    vkGetPhysicalDeviceQueueFamilyProperties(physical, &count, families);
    bool found = false;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t bits = families[i].timestampValidBits;
        if (families[i].queueFlags & VK_QUEUE_COMPUTE_BIT &&
            (!found || (bits && !*timestamp_bits))) {
            found = true;
            *family = i;
            *timestamp_bits = bits;
        }
    }
    return found;
}

static uint64_t device_local_bytes(VkPhysicalDevice physical)
{
    VkPhysicalDeviceMemoryProperties memory;
    vkGetPhysicalDeviceMemoryProperties(physical, &memory);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < memory.memoryHeapCount; i++)
        if (memory.memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT)
            bytes += memory.memoryHeaps[i].size;
    return bytes;
}

/* Fill the record of a device; false when hzb cannot use it. */
static bool describe(VkPhysicalDevice physical, struct hzb_device_info *info)
{
    VkPhysicalDeviceDriverProperties driver = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES};
    VkPhysicalDeviceIDProperties identity = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES, .pNext = &driver};
    VkPhysicalDeviceProperties2 all = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
                                       .pNext = &identity};
    const VkPhysicalDeviceProperties *properties = &all.properties;
    uint32_t family, timestamp_bits;

    vkGetPhysicalDeviceProperties(physical, &all.properties);
    if (properties->apiVersion < VK_API_VERSION_1_1 ||
        !hzb_compute_family(physical, &family, &timestamp_bits)) {
        return false;
    }
    vkGetPhysicalDeviceProperties2(physical, &all);

    *info = (struct hzb_device_info){
        .kind = kind_of(properties->deviceType),
        .vendor_id = properties->vendorID,
        .device_id = properties->deviceID,
        .api_version = properties->apiVersion,
        .memory = device_local_bytes(physical),
        /* Seen: SwiftShader waits for ever for threads that only the parent has. */
        .survives_fork = driver.driverID == VK_DRIVER_ID_MESA_LLVMPIPE,
    };
    snprintf(info->name, sizeof(info->name), "%s", properties->deviceName);
    memcpy(info->uuid, identity.deviceUUID, VK_UUID_SIZE);
    snprintf(info->driver_name, sizeof(info->driver_name), "%s", driver.driverName);
    if (driver.driverInfo[0]) {
        snprintf(info->driver_version, sizeof(info->driver_version), "%s", driver.driverInfo);
    } else {
        uint32_t version = properties->driverVersion;
        snprintf(info->driver_version, sizeof(info->driver_version), "%u.%u.%u",
                 VK_VERSION_MAJOR(version), VK_VERSION_MINOR(version), VK_VERSION_PATCH(version));
    }
    return true;
}

static enum hzb_status list_locked(struct hzb_error *err)
{
    VkResult result;
    uint32_t found;
    do {
        VK(vkEnumeratePhysicalDevices, instance.handle, &found, NULL);
        void *devices = hzb_realloc(instance.devices, found, sizeof(*instance.devices));
        if (!devices)
            return hzb_fail_no_memory(err, found * sizeof(*instance.devices));
        instance.devices = devices;
        VK_RESULT(result, vkEnumeratePhysicalDevices, instance.handle, &found, instance.devices);
    } while (result == VK_INCOMPLETE);

    instance.records = hzb_calloc(found, sizeof(*instance.records));
    if (!instance.records)
        return hzb_fail_no_memory(err, found * sizeof(*instance.records));
    for (uint32_t i = 0; i < found; i++)
        if (describe(instance.devices[i], &instance.records[instance.count]))
            instance.devices[instance.count++] = instance.devices[i];
    if (!instance.count) {
        return fail_no_device(err, found
                                       ? "none of their devices has Vulkan 1.1 and a compute queue"
                                       : "none of them has a device");
    }
    return HZB_OK;

fail:
    return explain(err);
}

/* ---- the instance --------------------------------------------------------------------------- */

/* Leave what there is of the instance, which is another process's or destroyed, and the list, which
   may be being read. */
static void forget_locked(void)
{
    hzb_vulkan_count(-!!instance.messenger - !!instance.handle);
    instance.messenger = VK_NULL_HANDLE;
    instance.handle = NULL;
    instance.devices = NULL;
    instance.records = NULL;
    instance.count = 0;
    instance.owner = 0;
}

static void destroy_locked(void)
{
    VK_DESTROY(vkDestroyDebugUtilsMessengerEXT, instance.handle, instance.messenger);
    if (instance.handle) {
        vkDestroyInstance(instance.handle, NULL);
        instance.handle = NULL;
        hzb_vulkan_count(-1);
    }
}

void hzb_loader_take(void)
{
    while (hzb_lock_take(&instance.lock, FORK_MS) == HZB_LOCK_TIMEOUT)
        continue;
}

void hzb_loader_drop(void) { hzb_lock_drop(&instance.lock); }

static void before_fork(void)
{
    held_for_fork = hzb_lock_take(&instance.lock, FORK_MS) == HZB_LOCK_TAKEN;
}

static void after_fork_in_parent(void)
{
    if (held_for_fork)
        hzb_loader_drop();
}

static void after_fork_in_child(void)
{
    hzb_lock_init(&instance.lock);
    messages.lock = (struct hzb_mutex)HZB_MUTEX_INIT;
}

bool hzb_instance_setup(void)
{
    return hzb_lock_init(&instance.lock) &&
           hzb_at_fork(before_fork, after_fork_in_parent, after_fork_in_child);
}

static enum hzb_status load_locked(struct hzb_error *err)
{
    if (!instance.library) {
        if (hzb_fault_due(HZB_FAULT_VULKAN) || volkInitialize() != VK_SUCCESS)
            return fail_no_loader(err);
        instance.library = true;
    }
    uint32_t version = volkGetInstanceVersion();
    if (version < VK_API_VERSION_1_1) {
        return hzb_fail(
            err, HZB_LOADER_NOT_FOUND,
            "the Vulkan loader (libvulkan.so.1) is of Vulkan %u.%u and 1.1 is the least "
            "that will do: upgrade it (Debian, Ubuntu: apt-get install libvulkan1)",
            VK_API_VERSION_MAJOR(version), VK_API_VERSION_MINOR(version));
    }
    instance.version = version < VK_API_VERSION_1_3 ? version : VK_API_VERSION_1_3;
    return HZB_OK;
}

static enum hzb_status create_locked(struct hzb_error *err)
{
    static const char *const layers[] = {LAYER_NAME};
    static const char *const extensions[] = {VK_EXT_DEBUG_UTILS_EXTENSION_NAME,
                                             VK_EXT_VALIDATION_FEATURES_EXTENSION_NAME};
    static const VkValidationFeatureEnableEXT checks[] = {
        VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT};
    /* The messenger is also chained here, for what is said while the instance is made or destroyed.
     */
    const VkValidationFeaturesEXT validation = {
        .sType = VK_STRUCTURE_TYPE_VALIDATION_FEATURES_EXT,
        .pNext = &messenger_info,
        .enabledValidationFeatureCount = 1,
        .pEnabledValidationFeatures = checks,
    };
    const VkApplicationInfo application = {
        .sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
        .pApplicationName = "hzb",
        .apiVersion = instance.version,
    };
    VkInstanceCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
        .pApplicationInfo = &application,
    };
    const char *asked = getenv("HZB_VALIDATION");
    bool validate = asked && !strcmp(asked, "1");
    if (validate) {
        info.pNext = &validation;
        info.enabledLayerCount = 1;
        info.ppEnabledLayerNames = layers;
        info.enabledExtensionCount = 2;
        info.ppEnabledExtensionNames = extensions;
    }
    VK_CREATE(instance.handle, vkCreateInstance, &info, NULL);
    instance.owner = hzb_process();
    volkLoadInstanceOnly(instance.handle);
    if (validate) {
        VK_CREATE(instance.messenger, vkCreateDebugUtilsMessengerEXT, instance.handle,
                  &messenger_info, NULL);
    }
    return HZB_OK;

fail:
    return explain(err);
}

enum hzb_status hzb_fail_ended(struct hzb_error *err)
{
    return hzb_fail(err, HZB_FAILED,
                    "this process is ending, and hzb has given its devices back: build earlier, in "
                    "a function that is registered with atexit after hzb is imported, for one");
}

static bool inherited_locked(void) { return instance.owner && instance.owner != hzb_process(); }

static bool has_hardware_locked(void)
{
    for (uint32_t i = 0; i < instance.count; i++)
        if (instance.records[i].kind != HZB_KIND_SOFTWARE)
            return true;
    return false;
}

static enum hzb_status check_fork_locked(struct hzb_error *err)
{
    if (!inherited_locked() || !has_hardware_locked())
        return HZB_OK;
    return hzb_fail(err, HZB_FAILED,
                    "this process was forked after its parent used the GPU driver, which cannot be "
                    "initialised again here: use the spawn or forkserver start method, or make the "
                    "first hzb call after the fork");
}

static enum hzb_status ensure_locked(struct hzb_error *err)
{
    if (instance.ended)
        return hzb_fail_ended(err);
    if (check_fork_locked(err))
        return err->status;
    if (inherited_locked())
        forget_locked();
    if (instance.owner)
        return HZB_OK;
    if (load_locked(err) || create_locked(err) || list_locked(err)) {
        destroy_locked();
        hzb_free(instance.devices);
        hzb_free(instance.records);
        forget_locked();
        return err->status;
    }
    return HZB_OK;
}

enum hzb_status hzb_instance(VkInstance *handle, struct hzb_error *err)
{
    hzb_loader_take();
    enum hzb_status status = ensure_locked(err);
    *handle = status ? NULL : instance.handle;
    hzb_loader_drop();
    return status;
}

enum hzb_status hzb_physical_devices(const VkPhysicalDevice **handles,
                                     const struct hzb_device_info **records, uint32_t *count,
                                     struct hzb_error *err)
{
    hzb_loader_take();
    enum hzb_status status = ensure_locked(err);
    *handles = status ? NULL : instance.devices;
    *records = status ? NULL : instance.records;
    *count = status ? 0 : instance.count;
    hzb_loader_drop();
    return status;
}

enum hzb_status hzb_check_fork(struct hzb_error *err)
{
    hzb_loader_take();
    enum hzb_status status = check_fork_locked(err);
    hzb_loader_drop();
    return status;
}

bool hzb_instance_inherited(void)
{
    hzb_loader_take();
    bool inherited = inherited_locked();
    hzb_loader_drop();
    return inherited;
}

const struct hzb_device_info *hzb_kept_records(uint32_t *count)
{
    hzb_loader_take();
    bool kept = instance.ended || inherited_locked();
    const struct hzb_device_info *records = kept ? instance.records : NULL;
    *count = kept ? instance.count : 0;
    hzb_loader_drop();
    return records;
}

uint32_t hzb_usable_version(const struct hzb_device_info *info)
{
    return info->api_version < instance.version ? info->api_version : instance.version;
}

void hzb_instance_end(bool in_use)
{
    hzb_loader_take();
    instance.ended = true;
    if (!in_use && !inherited_locked())
        destroy_locked();
    hzb_loader_drop();
}
