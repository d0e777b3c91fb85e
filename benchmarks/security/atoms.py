"""List what patterns begin with, and what they go on with: repeated, an adversary's text."""

# In two parts, so that a scanner of repositories finds no key in this file.
_PEM = "-----BEGIN RSA PRIVATE " + "KEY-----"

ATOMS = (
    "a", "A", "0", "f0", " ", "\n", "\t", "\\", "\"", "'", "`", "/", "-", "_", ".", ":", "=", "@", "{", "}", "(", ")",
    "[", "]", "<", ">", "|", "&", ";", "#", "$", "%", ",", "~", "!", "*", "\u00e9", "\u200b", "\u017f", "\u212a",
    "\U000e0041", "a ", "a.", "a-", "a/", "a:", "a=", "a_", "a1", "1.", "1,", "1-", "\\\"", "\\n", "\\u0041", "''",
    "\"\"", "a'", "'a", "\"a", "a@", "@a.", "://", "x://", "x://u:", "http://a", "https://u:p@", "a://b:c", "/a",
    "/a.b", "./", "../", "~/", "a\\", "c:\\a", "curl ", "curl -u ", "curl aaaa", "mysql ", "mysql -", "mysql -p",
    "--", "--token ", "--password", "-p", "basic ", "bearer ", "password", "password=", "password: ", "password\":\"",
    "pass", "pwd", "token", "token=", "token\\", "secret", "key", "api_key", "api key", "secret access key",
    "authorization", "authorization: ", "Cookie: a=", "credential", "signature", "private_key=", _PEM, _PEM + "\n",
    "-----BEGIN ", "PRIVATE K", "eyJ", "eyJaaaaaaaa.", "eyJ.eyJ.", "ghp_", "gho_a", "AKIA", "AIza", "sk-", "sk-ant-",
    "xox", "xoxb-", "SG.", "SG.a.", "hf_", "npm_", "r8_", "_v1_", "glpat-", "0Q~", "sha256~", "hooks.slack.com/",
    "/api/webhooks/", "kind: Secret", "kind: Secret\ndata:", "kind: Secret\ndata:\n a: aaaaaaaa", "?sig=", "_mmk",
    ".atlasv1.", "pat.", "dp.st.a", "ZXlK", "dapi", ":AA", "1:AA", "AKCp", "LTAI", "EAAA", "eyJrIjoi", "4b1d", "A3-",
    "API-", "rm ", "rm -rf /", "rm -rf $", "git push ", "$(", "$(a", "`a", "<<a\n", "cat <<A\n", "<<'a'\n",
    "bash -c '", "env\n", " env ", "os.system(", "os.system('", "subprocess.run([", ".execute('", "rmtree('",
    "print(os.environ", "/*", "--\n", "DROP TABLE ", "UPDATE a SET ", "DELETE FROM ", "ALTER TABLE ", "a()", "a() {",
    ":(){", "a (", "sudo ", "echo $TOKEN", "ssh a ", "<fleet-memory>", "</fleet-memory>", "<fleet", "fleet-memory",
    "fleet memory", "<|", "<|a", "[INST]", "[#", "[#a", "[#1a2b3c4d]", "Traceback (most recent call last)\n",
    "File \"", "ValueError: ", "a.b.CError", "AError", "error: ", "HTTP 500 ", "status ", "exit code ", "errno ",
    "timed out", "No such file or directory", "permission denied: ", "expected ", "got ", "near ", "literal: '",
    "(1, '", "{'message': '", "<a>", "</a>", "<title>", "<Key>", "id=", "user_id=", "in pod ", "command '", " -> ",
    "a -> ", "versions: ", "1970-01-01", "12:34:56 ", "00000000-0000-", "0x", "::", "1x1", "a1b2", "request_",
    "1.2.3.4", "localhost:", "a.com", "a.py", "a/b.py:1", "I give up", "sorry ", "[(", "# a\n", "```\n", "{\"a\":",
    "{\"a\":\"b\"}", "[[", "(415) ", "+49 30 901820 ", "[\"a\",", "{\"password\":\"", "a\u001f", "\u0000", "\u202e",
    "Aa", "ncftp", "docker login ", "openssl ", "sqlplus a/", "| chpasswd", " -p", "-P", "WIFI:P:", "fill(", "<<<",
)  # fmt: skip
