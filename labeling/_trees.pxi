# Trees with a dictionary of their own. Part of _kernel.pyx, which includes it.

# lxml puts the names of every document that a thread parses into one dictionary, which lives as
# long as the thread. Messages must not feed it: their trees are parsed here, and freed whole.

cdef extern from "libxml/tree.h" nogil:
    ctypedef struct PrivateNs "xmlNs":
        void* _private

ctypedef xmlParserCtxt* (*NewParser)() noexcept nogil
ctypedef void (*SetErrors)(xmlParserCtxt*, void*, void*) noexcept nogil
ctypedef void (*FreeDoc)(tree.xmlDoc*) noexcept nogil
ctypedef tree.xmlNode* (*CopyNode)(tree.xmlNode*, tree.xmlDoc*, int) noexcept nogil
ctypedef void (*FreeNode)(tree.xmlNode*) noexcept nogil
ctypedef tree.xmlNs* (*NewNs)(tree.xmlNode*, const tree.xmlChar*, const tree.xmlChar*) noexcept nogil
ctypedef void* (*NewBuffer)() noexcept nogil
ctypedef void (*BufferCall)(void*) noexcept nogil
ctypedef const char* (*BufferText)(void*) noexcept nogil
ctypedef int (*BufferSize)(void*) noexcept nogil
ctypedef void* (*NewOutput)(void*, void*) noexcept nogil
ctypedef int (*CloseOutput)(void*) noexcept nogil
ctypedef void (*DumpNode)(void*, tree.xmlDoc*, tree.xmlNode*, int, int, const char*) noexcept nogil

cdef NewParser new_parser = NULL
cdef SetErrors set_errors = NULL
cdef FreeDoc free_doc = NULL
cdef CopyNode copy_node = NULL
cdef FreeNode free_node = NULL
cdef NewNs new_ns = NULL
cdef NewBuffer new_buffer = NULL
cdef BufferCall free_buffer = NULL
cdef BufferText buffer_text = NULL
cdef BufferSize buffer_size = NULL
cdef NewOutput new_output = NULL
cdef CloseOutput close_output = NULL
cdef DumpNode dump_node = NULL
cdef bint trees_work = False


cdef void find_trees(void* library) noexcept:
    # Ask the loader for what it takes; lxml's own parser stands in where something is missing.
    global new_parser, set_errors, free_doc, copy_node, free_node, new_ns, new_buffer, free_buffer
    global buffer_text, buffer_size, new_output, close_output, dump_node, trees_work
    new_parser = <NewParser>dlsym(library, b"xmlNewParserCtxt")
    set_errors = <SetErrors>dlsym(library, b"xmlCtxtSetErrorHandler")
    free_doc = <FreeDoc>dlsym(library, b"xmlFreeDoc")
    copy_node = <CopyNode>dlsym(library, b"xmlDocCopyNode")
    free_node = <FreeNode>dlsym(library, b"xmlFreeNode")
    new_ns = <NewNs>dlsym(library, b"xmlNewNs")
    new_buffer = <NewBuffer>dlsym(library, b"xmlBufferCreate")
    free_buffer = <BufferCall>dlsym(library, b"xmlBufferFree")
    buffer_text = <BufferText>dlsym(library, b"xmlBufferContent")
    buffer_size = <BufferSize>dlsym(library, b"xmlBufferLength")
    new_output = <NewOutput>dlsym(library, b"xmlOutputBufferCreateBuffer")
    close_output = <CloseOutput>dlsym(library, b"xmlOutputBufferClose")
    dump_node = <DumpNode>dlsym(library, b"xmlNodeDumpOutput")
    trees_work = (new_parser != NULL and set_errors != NULL and read_memory != NULL
                  and free_context != NULL and free_doc != NULL and copy_node != NULL
                  and free_node != NULL and new_ns != NULL and new_buffer != NULL
                  and free_buffer != NULL and buffer_text != NULL and buffer_size != NULL
                  and new_output != NULL and close_output != NULL and dump_node != NULL)


find_events()


cdef void on_tree_error(void* data, const void* error) noexcept nogil:
    note(<Complaint*>data, <const xmlError*>error)


cdef class Document:
    """A tree that shares nothing with lxml's, freed with this object."""

    def __dealloc__(self):
        if self.doc != NULL:
            free_doc(self.doc)

    cdef void* top(self, bint wrapped) except NULL:
        """The element of row 0."""
        cdef tree.xmlNode* node = self.doc.children
        while node != NULL and node.type != tree.XML_ELEMENT_NODE:
            node = node.next
        return top_element(node, wrapped)

    cdef bytes fragment(self, tree.xmlNode* element):
        """The XML of an element, with the namespaces in force around it, in UTF-8."""
        cdef tree.xmlNode* shown
        cdef void* buffer = new_buffer()
        cdef void* output = new_output(buffer, NULL) if buffer != NULL else NULL
        cdef bint fine = False
        if output != NULL:
            with nogil:
                shown = with_namespaces(element)
                if shown != NULL:
                    dump_node(output, self.doc, shown, 0, 0, b"UTF-8")
                    shown.children = NULL
                    shown.last = NULL
                    free_node(shown)
                    fine = True
                close_output(output)
        try:
            if not fine:
                raise MemoryError
            return buffer_text(buffer)[:buffer_size(buffer)]
        finally:
            if buffer != NULL:
                free_buffer(buffer)


cdef tree.xmlNode* with_namespaces(tree.xmlNode* element) noexcept nogil:
    # A copy of an element, around the same children, that declares all that is in force there.
    cdef tree.xmlNode* shown = copy_node(element, element.doc, 2)
    cdef tree.xmlNode* node = element.parent
    cdef tree.xmlNs* ns
    if shown == NULL:
        return NULL
    while node != NULL and node.type == tree.XML_ELEMENT_NODE:
        ns = node.nsDef
        while ns != NULL:
            new_ns(shown, ns.href, ns.prefix)  # refuses a prefix that is declared already
            ns = ns.next
        node = node.parent
    shown.parent = element.parent
    shown.children = element.children
    shown.last = element.last
    return shown


cdef void* top_element(tree.xmlNode* root, bint wrapped) except NULL:
    cdef tree.xmlNode* node = root
    if wrapped:
        node = root.children
        if node == NULL or node.next != NULL or node.type == tree.XML_TEXT_NODE:
            raise ParseFailed(0, "not one record", 1, 1)
        if node.type != tree.XML_ELEMENT_NODE:
            raise ParseFailed(0, "not an element", 1, 1)  # but a comment or an instruction
    if node == NULL:
        raise ParseFailed(0, "not well-formed", 1, 1)
    return node


cdef tree.xmlDoc* parse_text(const char* text, Py_ssize_t size, bint huge, bint resolve,
                             Complaint* complaint) noexcept nogil:
    # The tree of a document; NULL, and mostly a complaint, if it has none.
    cdef int options = XML_PARSE_NOCDATA | XML_PARSE_NONET | XML_PARSE_COMPACT | XML_PARSE_BIG_LINES
    cdef xmlParserCtxt* context = new_parser()
    cdef tree.xmlDoc* doc
    if context == NULL:
        return NULL
    if huge:
        options |= XML_PARSE_HUGE
    if resolve:
        options |= XML_PARSE_NOENT
    set_errors(context, <void*>on_tree_error, complaint)
    doc = <tree.xmlDoc*>read_memory(context, text, <int>size, NULL, NULL, options)
    if doc != NULL and not (context.wellFormed and context.nsWellFormed):
        free_doc(doc)
        doc = NULL
    free_context(context)
    return doc


cdef tree.xmlDoc* raw_tree(const char* text, Py_ssize_t size, bint huge, bint resolve) noexcept nogil:
    """The tree of a document, with a dictionary of its own; NULL if it cannot be had.

    The caller gives it to `drop_tree`.
    """
    cdef Complaint complaint
    complaint.is_there = False
    if not trees_work or size > 0x7fffffff:
        return NULL
    return parse_text(text, size, huge, resolve, &complaint)


cdef void drop_tree(tree.xmlDoc* doc) noexcept nogil:
    free_doc(doc)


cdef Document parse_tree(bytes text, bint huge, bint resolve):
    """The tree of a document; raises ParseFailed."""
    cdef Document document = Document.__new__(Document)
    cdef Complaint complaint
    cdef const char* data = PyBytes_AS_STRING(text)
    cdef Py_ssize_t size = len(text)
    complaint.is_there = False
    with nogil:
        document.doc = parse_text(data, size, huge, resolve, &complaint)
    if document.doc == NULL:
        raise failure(&complaint)
    return document
