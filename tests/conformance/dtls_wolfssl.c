/* A DTLS client of wolfSSL: has five lines echoed, then closes.
 * Usage: dtls_wolfssl 1.2|1.3 NAME PORT CA [CERTIFICATE KEY]   (exit code 1 and a reason when anything fails; 77 when this wolfSSL
 * does not know the version) */
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
    if (argc != 5 && argc != 7)
        return fail("usage: dtls_wolfssl 1.2|1.3 NAME PORT CA [CERTIFICATE KEY]", NULL, 0);
    wolfSSL_Init();
    WOLFSSL_METHOD *method = NULL;
    if (strcmp(argv[1], "1.2") == 0)
        method = wolfDTLSv1_2_client_method();
#ifdef WOLFSSL_DTLS13
    else if (strcmp(argv[1], "1.3") == 0)
        method = wolfDTLSv1_3_client_method();
#endif
    if (!method) {
        fprintf(stderr, "this wolfSSL has no DTLS %s\n", argv[1]);
        return 77;
    }
    WOLFSSL_CTX *context = wolfSSL_CTX_new(method);
    if (!context || wolfSSL_CTX_load_verify_locations(context, argv[4], NULL) != WOLFSSL_SUCCESS)
        return fail("the CA", NULL, 0);
    if (argc == 7 && (wolfSSL_CTX_use_certificate_chain_file(context, argv[5]) != WOLFSSL_SUCCESS ||
                      wolfSSL_CTX_use_PrivateKey_file(context, argv[6], WOLFSSL_FILETYPE_PEM) != WOLFSSL_SUCCESS))
        return fail("the certificate", NULL, 0);

    struct sockaddr_in peer = {.sin_family = AF_INET, .sin_port = htons((unsigned short)atoi(argv[3]))};
    inet_pton(AF_INET, "127.0.0.1", &peer.sin_addr);
    int udp = socket(AF_INET, SOCK_DGRAM, 0);
    WOLFSSL *ssl = wolfSSL_new(context);
    wolfSSL_dtls_set_peer(ssl, &peer, sizeof peer);
    wolfSSL_set_fd(ssl, udp);
    wolfSSL_check_domain_name(ssl, argv[2]);
#ifdef HAVE_SNI
    wolfSSL_UseSNI(ssl, WOLFSSL_SNI_HOST_NAME, argv[2], (unsigned short)strlen(argv[2]));
#endif
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
