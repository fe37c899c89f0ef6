/* A DTLS 1.2 client of wolfSSL: has five lines echoed, then says goodbye.
 * Usage: dtls_wolfssl PORT CA [CERTIFICATE KEY]   (exit code 1 and a reason when anything fails) */
#include <wolfssl/options.h>
#include <wolfssl/ssl.h>
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int fail(const char *what, WOLFSSL *ssl, int result)
{
    char text[WOLFSSL_MAX_ERROR_SZ];
    fprintf(stderr, "%s: %s\n", what, ssl ? wolfSSL_ERR_error_string(wolfSSL_get_error(ssl, result), text) : "");
    return 1;
}

int main(int argc, char **argv)
{
    if (argc != 3 && argc != 5)
        return fail("usage: dtls_wolfssl PORT CA [CERTIFICATE KEY]", NULL, 0);
    wolfSSL_Init();
    WOLFSSL_CTX *context = wolfSSL_CTX_new(wolfDTLSv1_2_client_method());
    if (!context || wolfSSL_CTX_load_verify_locations(context, argv[2], NULL) != WOLFSSL_SUCCESS)
        return fail("the CA", NULL, 0);
    if (argc == 5 && (wolfSSL_CTX_use_certificate_chain_file(context, argv[3]) != WOLFSSL_SUCCESS ||
                      wolfSSL_CTX_use_PrivateKey_file(context, argv[4], WOLFSSL_FILETYPE_PEM) != WOLFSSL_SUCCESS))
        return fail("the certificate", NULL, 0);

    struct sockaddr_in peer = {.sin_family = AF_INET, .sin_port = htons((unsigned short)atoi(argv[1]))};
    inet_pton(AF_INET, "127.0.0.1", &peer.sin_addr);
    int udp = socket(AF_INET, SOCK_DGRAM, 0);
    WOLFSSL *ssl = wolfSSL_new(context);
    wolfSSL_dtls_set_peer(ssl, &peer, sizeof peer);
    wolfSSL_set_fd(ssl, udp);
    wolfSSL_check_domain_name(ssl, "localhost");
    int result = wolfSSL_connect(ssl);
    if (result != WOLFSSL_SUCCESS)
        return fail("the handshake", ssl, result);
    for (int n = 0; n < 5; n++) {
        char line[32], got[64] = "";
        snprintf(line, sizeof line, "line %d\n", n);
        if ((result = wolfSSL_write(ssl, line, (int)strlen(line))) <= 0)
            return fail("writing", ssl, result);
        if ((result = wolfSSL_read(ssl, got, sizeof got - 1)) <= 0)
            return fail("reading", ssl, result);
        if (strcmp(line, got) != 0)
            return fail("another line came back", NULL, 0);
    }
    wolfSSL_shutdown(ssl);
    close(udp);
    return 0;
}
