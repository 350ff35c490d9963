/* A Vulkan layer that ends the process with a message where hzb breaks a rule about processes: a
   child that uses what its parent made, a child that calls a hardware driver at all, anyone who
   calls Vulkan after the end, a child that runs a hardware driver's exit functions. With
   HZB_GUARD_HARDWARE=1 software drivers pass for hardware, so that the rules for hardware can be
   tried anywhere. tests/guard.py builds it; it knows nothing of what hzb computes. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <vulkan/vk_layer.h>
#include <vulkan/vulkan.h>

#define EXPORT __attribute__((visibility("default")))

/* ---- rules ---------------------------------------------------------------------------------- */

static pid_t first_user; /* the first process of a family that made an instance */
static int over;

static void fail(const char *function, const char *rule)
{
    fprintf(stderr, "%s: %s\n", function, rule);
    abort();
}

static int pretends_hardware(void)
{
    const char *value = getenv("HZB_GUARD_HARDWARE");
    return value && !strcmp(value, "1");
}

static void check(const char *function, pid_t maker)
{
    if (over)
        fail(function, "called after the end");
    if (maker != getpid())
        fail(function, "called in a child on what its parent made");
}

static void at_exit(void)
{
    if (getpid() != first_user)
        fail("exit", "called in a child with the functions of its parent's hardware driver");
}

/* For tests: from now on nobody may call. */
EXPORT void hzb_guard_end(void) { over = 1; }

/* ---- what is below, by instance or device --------------------------------------------------- */

#define INSTANCE_FUNCTIONS(X)                                                                      \
    X(DestroyInstance)                                                                             \
    X(EnumeratePhysicalDevices)                                                                    \
    X(EnumerateDeviceExtensionProperties)                                                          \
    X(GetPhysicalDeviceProperties)                                                                 \
    X(GetPhysicalDeviceProperties2)                                                                \
    X(GetPhysicalDeviceFeatures2)                                                                  \
    X(GetPhysicalDeviceMemoryProperties)                                                           \
    X(GetPhysicalDeviceQueueFamilyProperties)
#define DEVICE_FUNCTIONS(X)                                                                        \
    X(DestroyDevice)                                                                               \
    X(DeviceWaitIdle)                                                                              \
    X(QueueSubmit)                                                                                 \
    X(WaitForFences)                                                                               \
    X(GetFenceStatus)                                                                              \
    X(ResetFences)                                                                                 \
    X(CreateFence)                                                                                 \
    X(DestroyFence)                                                                                \
    X(CreateBuffer)                                                                                \
    X(DestroyBuffer)                                                                               \
    X(AllocateMemory)                                                                              \
    X(FreeMemory)                                                                                  \
    X(DestroyCommandPool)                                                                          \
    X(FreeCommandBuffers)                                                                          \
    X(CreateComputePipelines)                                                                      \
    X(DestroyPipeline)

struct below {
    void *key; /* of all handles that belong to one instance or device */
    pid_t maker;
    VkInstance instance;
    PFN_vkGetInstanceProcAddr instance_function;
    PFN_vkGetDeviceProcAddr device_function;
#define MEMBER(name) PFN_vk##name name;
    INSTANCE_FUNCTIONS(MEMBER)
    DEVICE_FUNCTIONS(MEMBER)
#undef MEMBER
};

static struct below known[256];
static int count;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

/* The latest of a key: a key may come back when what had it is gone. */
static struct below *find(const void *handle)
{
    void *key = *(void *const *)handle;
    pthread_mutex_lock(&mutex);
    int i = count - 1;
    while (i >= 0 && known[i].key != key)
        i--;
    pthread_mutex_unlock(&mutex);
    return i < 0 ? NULL : &known[i];
}

static struct below *found(const char *function, const void *handle)
{
    struct below *below = find(handle);
    if (!below)
        fail(function, "called on a handle that nobody made");
    check(function, below->maker);
    return below;
}

static void add(const struct below *below)
{
    struct below *same = find(&below->key);
    pthread_mutex_lock(&mutex);
    if (!same && count == sizeof(known) / sizeof(known[0]))
        fail("guard", "too many devices");
    *(same ? same : &known[count++]) = *below;
    pthread_mutex_unlock(&mutex);
}

/* ---- functions of instances ----------------------------------------------------------------- */

static VKAPI_ATTR VkResult VKAPI_CALL guard_CreateInstance(const VkInstanceCreateInfo *info,
                                                           const VkAllocationCallbacks *allocator,
                                                           VkInstance *instance)
{
    VkLayerInstanceCreateInfo *link = (VkLayerInstanceCreateInfo *)info->pNext;
    while (link->sType != VK_STRUCTURE_TYPE_LOADER_INSTANCE_CREATE_INFO ||
           link->function != VK_LAYER_LINK_INFO)
        link = (VkLayerInstanceCreateInfo *)link->pNext;
    if (over)
        fail("vkCreateInstance", "called after the end");
    if (!first_user) {
        first_user = getpid();
        if (pretends_hardware())
            atexit(at_exit);
    }
    if (first_user != getpid() && pretends_hardware())
        fail("vkCreateInstance", "called in a child of a process that used a hardware driver");

    PFN_vkGetInstanceProcAddr next = link->u.pLayerInfo->pfnNextGetInstanceProcAddr;
    link->u.pLayerInfo = link->u.pLayerInfo->pNext;
    PFN_vkCreateInstance create = (PFN_vkCreateInstance)next(VK_NULL_HANDLE, "vkCreateInstance");
    VkResult result = create(info, allocator, instance);
    if (result == VK_SUCCESS) {
        struct below below = {
            .key = *(void **)*instance,
            .maker = getpid(),
            .instance = *instance,
            .instance_function = next,
        };
#define LOAD(name) below.name = (PFN_vk##name)next(*instance, "vk" #name);
        INSTANCE_FUNCTIONS(LOAD)
#undef LOAD
        add(&below);
    }
    return result;
}

static VKAPI_ATTR void VKAPI_CALL guard_DestroyInstance(VkInstance instance,
                                                        const VkAllocationCallbacks *allocator)
{
    found("vkDestroyInstance", instance)->DestroyInstance(instance, allocator);
}

static VKAPI_ATTR VkResult VKAPI_CALL guard_EnumeratePhysicalDevices(VkInstance instance,
                                                                     uint32_t *listed,
                                                                     VkPhysicalDevice *devices)
{
    return found("vkEnumeratePhysicalDevices", instance)
        ->EnumeratePhysicalDevices(instance, listed, devices);
}

static VKAPI_ATTR VkResult VKAPI_CALL guard_EnumerateDeviceExtensionProperties(
    VkPhysicalDevice device, const char *layer, uint32_t *listed, VkExtensionProperties *properties)
{
    return found("vkEnumerateDeviceExtensionProperties", device)
        ->EnumerateDeviceExtensionProperties(device, layer, listed, properties);
}

static void disguise(VkPhysicalDeviceProperties *properties)
{
    if (pretends_hardware())
        properties->deviceType = VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU;
}

static VKAPI_ATTR void VKAPI_CALL
guard_GetPhysicalDeviceProperties(VkPhysicalDevice device, VkPhysicalDeviceProperties *properties)
{
    found("vkGetPhysicalDeviceProperties", device)->GetPhysicalDeviceProperties(device, properties);
    disguise(properties);
}

static VKAPI_ATTR void VKAPI_CALL
guard_GetPhysicalDeviceProperties2(VkPhysicalDevice device, VkPhysicalDeviceProperties2 *properties)
{
    found("vkGetPhysicalDeviceProperties2", device)
        ->GetPhysicalDeviceProperties2(device, properties);
    disguise(&properties->properties);
}

static VKAPI_ATTR void VKAPI_CALL
guard_GetPhysicalDeviceFeatures2(VkPhysicalDevice device, VkPhysicalDeviceFeatures2 *features)
{
    found("vkGetPhysicalDeviceFeatures2", device)->GetPhysicalDeviceFeatures2(device, features);
}

static VKAPI_ATTR void VKAPI_CALL guard_GetPhysicalDeviceMemoryProperties(
    VkPhysicalDevice device, VkPhysicalDeviceMemoryProperties *properties)
{
    found("vkGetPhysicalDeviceMemoryProperties", device)
        ->GetPhysicalDeviceMemoryProperties(device, properties);
}

static VKAPI_ATTR void VKAPI_CALL guard_GetPhysicalDeviceQueueFamilyProperties(
    VkPhysicalDevice device, uint32_t *listed, VkQueueFamilyProperties *families)
{
    found("vkGetPhysicalDeviceQueueFamilyProperties", device)
        ->GetPhysicalDeviceQueueFamilyProperties(device, listed, families);
}

/* ---- functions of devices ------------------------------------------------------------------- */

static VKAPI_ATTR VkResult VKAPI_CALL guard_CreateDevice(VkPhysicalDevice physical,
                                                         const VkDeviceCreateInfo *info,
                                                         const VkAllocationCallbacks *allocator,
                                                         VkDevice *device)
{
    VkLayerDeviceCreateInfo *link = (VkLayerDeviceCreateInfo *)info->pNext;
    while (link->sType != VK_STRUCTURE_TYPE_LOADER_DEVICE_CREATE_INFO ||
           link->function != VK_LAYER_LINK_INFO)
        link = (VkLayerDeviceCreateInfo *)link->pNext;
    struct below *parent = found("vkCreateDevice", physical);
    PFN_vkGetDeviceProcAddr next = link->u.pLayerInfo->pfnNextGetDeviceProcAddr;
    PFN_vkCreateDevice create = (PFN_vkCreateDevice)link->u.pLayerInfo->pfnNextGetInstanceProcAddr(
        parent->instance, "vkCreateDevice");
    link->u.pLayerInfo = link->u.pLayerInfo->pNext;
    VkResult result = create(physical, info, allocator, device);
    if (result == VK_SUCCESS) {
        struct below below = {
            .key = *(void **)*device,
            .maker = getpid(),
            .device_function = next,
        };
#define LOAD(name) below.name = (PFN_vk##name)next(*device, "vk" #name);
        DEVICE_FUNCTIONS(LOAD)
#undef LOAD
        add(&below);
    }
    return result;
}

#define PASS(result_type, name, parameters, first, ...)                                            \
    static VKAPI_ATTR result_type VKAPI_CALL guard_##name parameters                               \
    {                                                                                              \
        return found("vk" #name, first)->name(first, ##__VA_ARGS__);                               \
    }
#define ALLOCATOR const VkAllocationCallbacks *allocator

PASS(void, DestroyDevice, (VkDevice device, ALLOCATOR), device, allocator)
PASS(VkResult, DeviceWaitIdle, (VkDevice device), device)
PASS(VkResult, QueueSubmit,
     (VkQueue queue, uint32_t submits, const VkSubmitInfo *submit, VkFence fence), queue, submits,
     submit, fence)
PASS(VkResult, WaitForFences,
     (VkDevice device, uint32_t fences, const VkFence *fence, VkBool32 wait_all, uint64_t timeout),
     device, fences, fence, wait_all, timeout)
PASS(VkResult, GetFenceStatus, (VkDevice device, VkFence fence), device, fence)
PASS(VkResult, ResetFences, (VkDevice device, uint32_t fences, const VkFence *fence), device,
     fences, fence)
PASS(VkResult, CreateFence,
     (VkDevice device, const VkFenceCreateInfo *info, ALLOCATOR, VkFence *fence), device, info,
     allocator, fence)
PASS(void, DestroyFence, (VkDevice device, VkFence fence, ALLOCATOR), device, fence, allocator)
PASS(VkResult, CreateBuffer,
     (VkDevice device, const VkBufferCreateInfo *info, ALLOCATOR, VkBuffer *buffer), device, info,
     allocator, buffer)
PASS(void, DestroyBuffer, (VkDevice device, VkBuffer buffer, ALLOCATOR), device, buffer, allocator)
PASS(VkResult, AllocateMemory,
     (VkDevice device, const VkMemoryAllocateInfo *info, ALLOCATOR, VkDeviceMemory *memory), device,
     info, allocator, memory)
PASS(void, FreeMemory, (VkDevice device, VkDeviceMemory memory, ALLOCATOR), device, memory,
     allocator)
PASS(void, DestroyCommandPool, (VkDevice device, VkCommandPool pool, ALLOCATOR), device, pool,
     allocator)
PASS(void, FreeCommandBuffers,
     (VkDevice device, VkCommandPool pool, uint32_t buffers, const VkCommandBuffer *buffer), device,
     pool, buffers, buffer)
PASS(VkResult, CreateComputePipelines,
     (VkDevice device, VkPipelineCache cache, uint32_t pipelines,
      const VkComputePipelineCreateInfo *info, ALLOCATOR, VkPipeline *pipeline),
     device, cache, pipelines, info, allocator, pipeline)
PASS(void, DestroyPipeline, (VkDevice device, VkPipeline pipeline, ALLOCATOR), device, pipeline,
     allocator)

/* ---- the layer ------------------------------------------------------------------------------ */

EXPORT VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL vkGetDeviceProcAddr(VkDevice device,
                                                                    const char *name)
{
#define NAMED(function)                                                                            \
    if (!strcmp(name, "vk" #function))                                                             \
        return (PFN_vkVoidFunction)guard_##function;
    DEVICE_FUNCTIONS(NAMED)
    if (!strcmp(name, "vkGetDeviceProcAddr"))
        return (PFN_vkVoidFunction)vkGetDeviceProcAddr;
    return found(name, device)->device_function(device, name);
}

EXPORT VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL vkGetInstanceProcAddr(VkInstance instance,
                                                                      const char *name)
{
    INSTANCE_FUNCTIONS(NAMED)
    DEVICE_FUNCTIONS(NAMED)
    NAMED(CreateInstance)
    NAMED(CreateDevice)
#undef NAMED
    if (!strcmp(name, "vkGetInstanceProcAddr"))
        return (PFN_vkVoidFunction)vkGetInstanceProcAddr;
    if (!strcmp(name, "vkGetDeviceProcAddr"))
        return (PFN_vkVoidFunction)vkGetDeviceProcAddr;
    return instance ? found(name, instance)->instance_function(instance, name) : NULL;
}
