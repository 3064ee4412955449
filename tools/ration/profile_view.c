// profile_view.c — ration profile view: the page in a browser, or served on the loopback address,
// for a browser at the other end of an ssh tunnel.
#include "command.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAX_REQUEST_BYTES = 8192, MAX_CLIENTS = 16, REQUEST_SECONDS = 5, MAX_PATH_BYTES = 4096 };

static rn_status fail_system(const char *what) {
    return rn_fail(RN_IO, "%s: %s", what, strerror(errno));
}

// ---- a browser ------------------------------------------------------------------------

static bool find_program(const char *name) {
    char folders[8192], path[8192];
    char *rest = folders;
    snprintf(folders, sizeof folders, "%s", getenv("PATH") ? getenv("PATH") : "");
    for (char *folder; (folder = strsep(&rest, ":"));) {
        snprintf(path, sizeof path, "%s/%s", folder, name);
        if (access(path, X_OK) == 0) return true;
    }
    return false;
}

// The user's own, or what the desktop says; NULL where there is neither or no display.
static const char *find_browser(void) {
    const char *own = getenv("BROWSER");
    if (own && *own && (strchr(own, '/') ? access(own, X_OK) == 0 : find_program(own))) return own;
    if (!getenv("DISPLAY") && !getenv("WAYLAND_DISPLAY")) return NULL;
    return find_program("xdg-open") ? "xdg-open" : NULL;
}

static rn_status start_browser(const char *browser, const char *page) {
    pid_t child = fork();
    if (child < 0) return fail_system("cannot start a browser");
    if (child == 0) {
        execlp(browser, browser, page, (char *)NULL);
        _exit(127);
    }
    int status;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        continue;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return RN_OK;
    return rn_hint(rn_fail(RN_IO, "%s could not open %s", browser, page),
                   "open the file yourself, or use --serve");
}

// ---- one page over HTTP ---------------------------------------------------------------

typedef struct page_server {
    int listener;
    uint16_t port;
    int page; // the file
    size_t bytes;
} page_server;

static rn_status open_listener(page_server *server, uint64_t port) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    socklen_t bytes = sizeof at;
    int yes = 1;
    if (port > 65535)
        return rn_fail(RN_INVALID, "--view-port %llu is no port", (unsigned long long)port);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    server->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (server->listener < 0) return fail_system("cannot make a socket");
    setsockopt(server->listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(server->listener, (struct sockaddr *)&at, sizeof at) != 0 ||
        listen(server->listener, 8) != 0 ||
        getsockname(server->listener, (struct sockaddr *)&at, &bytes) != 0)
        return rn_hint(fail_system("cannot listen on the loopback address"),
                       "another --view-port may be free; 0 takes any");
    server->port = ntohs(at.sin_port);
    return RN_OK;
}

// The request's head, NUL-terminated; false where it does not come, or not whole.
static bool read_request(int client, char head[MAX_REQUEST_BYTES]) {
    size_t have = 0;
    while (have < MAX_REQUEST_BYTES - 1) {
        ssize_t got = read(client, head + have, MAX_REQUEST_BYTES - 1 - have);
        if (got <= 0) return false;
        have += (size_t)got;
        head[have] = '\0';
        if (strstr(head, "\r\n\r\n")) return true;
    }
    return false;
}

// A page of another site may make the browser ask here under a name of its own: only this machine's
// names are answered.
static bool is_for_us(const page_server *server, const char *head) {
    char host[64];
    static const char *const names[] = {"127.0.0.1", "localhost"};
    const char *at = strcasestr(head, "\r\nHost:");
    if (!at || sscanf(at + 7, " %63s", host) != 1) return false;
    for (int i = 0; i < 2; i++) {
        char expected[64];
        snprintf(expected, sizeof expected, "%s:%u", names[i], server->port);
        if (strcasecmp(host, expected) == 0) return true;
    }
    return false;
}

static void send_text(int client, const char *text) {
    for (size_t sent = 0, bytes = strlen(text); sent < bytes;) {
        ssize_t got = send(client, text + sent, bytes - sent, MSG_NOSIGNAL);
        if (got <= 0) return;
        sent += (size_t)got;
    }
}

static void send_page(const page_server *server, int client) {
    char head[256];
    off_t at = 0;
    snprintf(head, sizeof head,
             "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: %zu\r\n"
             "Cache-Control: no-store\r\nConnection: close\r\n\r\n",
             server->bytes);
    send_text(client, head);
    while ((size_t)at < server->bytes)
        if (sendfile(client, server->page, &at, server->bytes - (size_t)at) <= 0) return;
}

static void answer(const page_server *server, int client) {
    char head[MAX_REQUEST_BYTES];
    bool is_whole = read_request(client, head);
    alarm(0);
    if (!is_whole || !is_for_us(server, head))
        send_text(client, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    else if (strncmp(head, "GET / ", 6) == 0)
        send_page(server, client);
    else
        send_text(client, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
}

// Each client has a process, for some say nothing: browsers open connections ahead of need. One
// that has not asked in time is ended by the alarm, one that does not read by the socket's limit.
static bool start_answer(const page_server *server, int client) {
    struct timeval limit = {.tv_sec = REQUEST_SECONDS};
    pid_t child = fork();
    if (child != 0) return child > 0;
    close(server->listener);
    setsockopt(client, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    alarm(REQUEST_SECONDS);
    answer(server, client);
    _exit(0);
}

static void serve(const page_server *server) {
    struct pollfd wait = {.fd = server->listener, .events = POLLIN};
    for (int count = 0; !interrupted;) {
        while (count > 0 && waitpid(-1, NULL, WNOHANG) > 0)
            count--;
        if (poll(&wait, count < MAX_CLIENTS, 200) <= 0) continue;
        int client = accept4(server->listener, NULL, NULL, SOCK_CLOEXEC);
        if (client < 0) continue;
        count += start_answer(server, client);
        close(client);
    }
    forget_interrupt(); // that is how it ends
}

static rn_status serve_page(const invocation *in, int page) {
    page_server server = {.listener = -1, .page = page};
    struct stat status;
    rn_status s = RN_OK;
    if (fstat(server.page, &status) != 0) s = fail_system("cannot read the page");
    if (s == RN_OK) s = open_listener(&server, rn_settings_count(in->settings, "view-port"));
    if (s == RN_OK) {
        server.bytes = (size_t)status.st_size;
        printf("http://127.0.0.1:%u/ (Ctrl-C ends)\n", server.port);
        fflush(stdout);
        serve(&server);
    }
    if (server.listener >= 0) close(server.listener);
    return s;
}

// ---- the page -------------------------------------------------------------------------
//
// A page is written to a new file of this user alone, ration-profile-XXXXXX.part, that is locked
// meanwhile. One that is served loses its name at once: nothing remains however this process ends.
// One for a browser is then called .html and stays, for the browser may read it again. Each view
// removes what earlier ones left: parts that nobody has locked, pages that are a day old.

enum { PAGE_SECONDS = 24 * 60 * 60, RANDOM_LETTERS = 6 };
static const char page_prefix[] = "ration-profile-", part_ending[] = ".part",
                  page_ending[] = ".html";

static const char *temporary_folder(void) {
    const char *own = getenv("TMPDIR");
    return own && *own ? own : "/tmp";
}

static bool is_page_name(const char *name, const char *ending) {
    size_t prefix = strlen(page_prefix), middle = prefix + RANDOM_LETTERS;
    return strlen(name) == middle + strlen(ending) && strncmp(name, page_prefix, prefix) == 0 &&
           strcmp(name + middle, ending) == 0;
}

static bool is_locked(int folder, const char *name) {
    int file = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    bool locked = file < 0 || flock(file, LOCK_EX | LOCK_NB) != 0;
    if (file >= 0) close(file);
    return locked;
}

// Only plain files of this user: a link under such a name is not ours, and is not followed.
static void remove_old(int folder, const char *name) {
    struct stat status;
    bool is_part = is_page_name(name, part_ending);
    if (!is_part && !is_page_name(name, page_ending)) return;
    if (fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(status.st_mode) ||
        status.st_uid != geteuid())
        return;
    if (is_part ? is_locked(folder, name) : status.st_mtime > time(NULL) - PAGE_SECONDS) return;
    (void)unlinkat(folder, name, 0);
}

static void remove_old_pages(void) {
    DIR *folder = opendir(temporary_folder());
    if (!folder) return;
    for (struct dirent *entry; (entry = readdir(folder));)
        remove_old(dirfd(folder), entry->d_name);
    closedir(folder);
}

static rn_status write_page(const char *input, int file) {
    rn_timeline *timeline = NULL;
    FILE *stream = fdopen(dup(file), "we");
    if (!stream) return fail_system("cannot write the page");
    rn_status s = rn_timeline_open(input, &timeline);
    if (s == RN_OK) s = rn_timeline_export(timeline, RN_EXPORT_HTML, rn_sink_file(stream));
    if (fclose(stream) != 0 && s == RN_OK) s = fail_system("cannot write the page");
    rn_timeline_destroy(timeline);
    return s;
}

// Opens the file, locked; -1 in `*out_file` where that fails.
static rn_status make_part(char path[MAX_PATH_BYTES], int *out_file) {
    *out_file = -1;
    int bytes = snprintf(path, MAX_PATH_BYTES, "%s/%sXXXXXX%s", temporary_folder(), page_prefix,
                         part_ending);
    if (bytes >= MAX_PATH_BYTES)
        return rn_hint(rn_fail(RN_INVALID, "the folder for temporary files has too long a name"),
                       "set TMPDIR to a shorter one");
    *out_file = mkstemps(path, (int)strlen(part_ending)); // O_EXCL
    if (*out_file < 0)
        return rn_hint(fail_system("cannot make a file for the page"),
                       "set TMPDIR to a folder that can be written to");
    (void)flock(*out_file, LOCK_EX | LOCK_NB); // where there are no locks, parts stay
    return RN_OK;
}

static rn_status open_in_browser(const char *browser, const char *part) {
    char page[MAX_PATH_BYTES];
    int bytes = (int)(strlen(part) - strlen(part_ending));
    snprintf(page, sizeof page, "%.*s%s", bytes, part, page_ending);
    if (rename(part, page) != 0) return fail_system("cannot name the page");
    printf("%s\n", page);
    fflush(stdout);
    return start_browser(browser, page);
}

rn_status profile_view(const invocation *in) {
    char part[MAX_PATH_BYTES];
    int page = -1;
    const char *browser = rn_settings_bool(in->settings, "serve") ? NULL : find_browser();
    remove_old_pages();
    RN_TRY(make_part(part, &page));
    if (!browser) unlink(part);
    rn_status s = write_page(in->words[1], page);
    if (s == RN_OK) s = browser ? open_in_browser(browser, part) : serve_page(in, page);
    if (browser && s != RN_OK) unlink(part); // gone already, where only the browser failed
    close(page);
    return s;
}
