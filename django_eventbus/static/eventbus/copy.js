/* Copy buttons for read-only texts. Without this script the texts can be selected by hand. */
'use strict';
{
    const copied = async function(button) {
        const field = document.getElementById(button.dataset.eventbusCopy);
        field.select();
        try {
            await navigator.clipboard.writeText(field.value);
        } catch {
            document.execCommand('copy');
        }
        button.textContent = button.dataset.eventbusCopied;
    };
    document.addEventListener('DOMContentLoaded', function() {
        for (const button of document.querySelectorAll('[data-eventbus-copy]')) {
            button.hidden = false;
            button.addEventListener('click', () => copied(button));
        }
    });
}
